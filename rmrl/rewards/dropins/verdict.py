"""Check the value that a user's function returned as one score."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class Verdict:
    """A checked return value: a finite number, or None with the reason in `problem` ("": the
    function returned None, no verdict)."""

    value: float | None
    extra: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    reason: str = ""
    """Reason why a judge's text has no verdict, in front of "in <the text>"; "" where it is
    unknown."""


@dataclass(frozen=True, slots=True)
class RowError:
    """Placeholder where a function of all rows has no result for one of them."""

    what: str
    """The function, e.g. "rm_preprocess of reward 'judge'"."""
    detail: str
    """The failure: the end of a sentence that begins with `what`."""


def check_verdict(returned: Any) -> Verdict:
    """Check a returned score: a number, a bool, None, or a dict with "score" plus extra columns.
    NaN, infinities and all other values are problems."""
    if isinstance(returned, RowError):
        return Verdict(None, problem=returned.detail)
    if isinstance(returned, Mapping):
        if "score" not in returned:
            keys = ", ".join(map(str, returned)) or "none"
            return Verdict(None, problem=f"returned a dict without 'score' (keys: {keys})")
        extra = {str(name): value for name, value in returned.items() if name != "score"}
        if isinstance(returned["score"], Mapping):
            return Verdict(None, extra, "returned a dict as 'score'; a score is a number or None")
        inner = check_verdict(returned["score"])
        return Verdict(inner.value, extra, inner.problem)
    if returned is None:
        return Verdict(None)
    if hasattr(returned, "item") and not isinstance(returned, numbers.Number):
        # A tensor or array of one element is a number; a larger one stays what it is.
        with contextlib.suppress(ValueError, RuntimeError, TypeError):
            returned = returned.item()
    if isinstance(returned, numbers.Real | Decimal):
        try:
            value = float(returned)
        except OverflowError:
            problem = (
                "returned a number too large for a float (OverflowError); scale the score down"
            )
            return Verdict(None, problem=problem)
        if math.isfinite(value):
            return Verdict(value)
        return Verdict(None, problem=f"returned {value}; return None where there is no verdict")
    problem = (
        f"returned {repr(returned)[:80]} ({type(returned).__name__}); a score is a number, None, or"
        " a dict with 'score'"
    )
    return Verdict(None, problem=problem)
