"""Parts that the wires of reward servers share: the user's own entries of a post, and numbers read
from an answer."""

from __future__ import annotations

import math
from typing import Any

from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.types import Status


def with_extra(body: dict[str, Any], spec: HTTPSpec) -> dict[str, Any]:
    """Return `body` with the user's own entries; null removes one."""
    combined = dict(body)
    for name, value in spec.extra_body.items():
        if value is None:
            combined.pop(name, None)
        else:
            combined[name] = value
    return combined


def value_output(value: Any, url: str, extra: tuple[tuple[str, Any], ...] = ()) -> ValueOutput:
    """Return a finite number unchanged, or a failure that quotes the value."""
    number = math.nan
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            # JSON has integers of any length.
            number = math.inf
    if math.isfinite(number):
        return ValueOutput(number, 0, extra=extra)
    text = repr(value)[:80]
    return failed("provider_error", f"{url} gave {text} as a reward; a finite number is needed.")


def failed(failure: Status, detail: str) -> ValueOutput:
    """Return a result without a number, with the reason."""
    return ValueOutput(math.nan, 0, failure=failure, detail=detail)


def check_method(method: str, wire: str) -> None:
    """Raise RewardError for a method other than "reward"."""
    if method != "reward":
        raise RewardError(
            f"the wire {wire} scores responses and has no method '{method}'; use wire: openai for a"
            " judge that writes text"
        )
