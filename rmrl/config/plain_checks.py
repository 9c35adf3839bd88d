"""Checks that many keys share: one of a few names, above zero, not below zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rmrl.registry import did_you_mean


def look_up(config: Any, key: str) -> Any:
    """Value of a dotted key."""
    node: Any = config
    for part in key.split("."):
        node = getattr(node, part)
    return node


def choice_problems(
    config: Any, choices: Sequence[tuple[str, Sequence[str | None]]]
) -> Iterator[str]:
    """`choices`: (key, allowed values); None among them allows null."""
    for key, allowed in choices:
        value = look_up(config, key)
        if value not in allowed:
            yield (
                f"{key}={value!r}: not a"
                f" choice{did_you_mean(str(value), [name for name in allowed if name is not None])}"
            )


def number_problems(
    config: Any, *, positive: Sequence[str], at_least_zero: Sequence[str]
) -> Iterator[str]:
    """Keys whose numbers must be above, or not below, zero. NaN is neither."""
    for key in positive:
        if not look_up(config, key) > 0:
            yield f"{key}={look_up(config, key)}: must be greater than 0"
    for key in at_least_zero:
        if not look_up(config, key) >= 0:
            yield f"{key}={look_up(config, key)}: must not be negative"


def count(items: Sequence[Any], word: str) -> str:
    """ "1 value", "2 values"."""
    return f"{len(items)} {word}" if len(items) == 1 else f"{len(items)} {word}s"
