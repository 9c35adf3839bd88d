"""One row of the table of verl's keys: a key or a family of keys, and what becomes of it here."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

Fate = Literal["same", "renamed", "converted", "no effect", "refused", "unknown"]
_NOTHING: tuple[Hashable, ...] = (None, False, "")
"""What asks for nothing of a key that is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFate:
    """What becomes of the keys that `pattern` matches. A key that no row matches is one of ours, or
    unknown."""

    pattern: str
    """A dotted key. `(a|b)` is one of several names, `.*` at the end the section and all keys below
    it."""
    fate: Fate
    why: str
    """renamed, converted: what it means here. no effect: why leaving it out changes no result.
    refused: what to use instead."""
    ours: str = ""
    """renamed: the key here; `\\1` stands for a group of the pattern, `.*` at the end for what that of the pattern matched."""
    accepts: tuple[Hashable, ...] = ()
    """Values that ask for what is always so, or for nothing: dropped without a word."""
    by: str = ""
    """converted: name of the function in CONVERSIONS."""

    def matches(self, key: str) -> bool:
        """Whether the row is about this key."""
        return _regex(self.pattern).fullmatch(key) is not None

    def renamed(self, key: str) -> str:
        """Our key for one that matches."""
        match = _regex(self.pattern).fullmatch(key)
        assert match is not None, (self.pattern, key)
        assert self.ours, self.pattern
        if not self.ours.endswith(".*"):
            return match.expand(self.ours)
        return match.expand(self.ours.removesuffix(".*")) + match["rest"]

    def asks_for_nothing(self, value: Any) -> bool:
        """Whether the value is one of `accepts`."""
        return isinstance(value, Hashable) and any(
            value == known and _both_bool(value, known) for known in self.accepts
        )


def fate_of(key: str, table: Sequence[KeyFate]) -> KeyFate | None:
    """The first row that matches; None for a key that the table does not know."""
    return next((row for row in table if row.matches(key)), None)


def renamed(
    pattern: str, ours: str, why: str = "", *, accepts: tuple[Hashable, ...] = ()
) -> KeyFate:
    """Same meaning and values under another name."""
    return KeyFate(pattern=pattern, fate="renamed", why=why, ours=ours, accepts=accepts)


def no_effect(pattern: str, why: str, *, accepts: tuple[Hashable, ...] = ()) -> KeyFate:
    """Leaving it out changes no result."""
    return KeyFate(pattern=pattern, fate="no effect", why=why, accepts=accepts)


def refused(pattern: str, why: str, *, accepts: tuple[Hashable, ...] = ()) -> KeyFate:
    """Any value that asks for something is an error."""
    return KeyFate(pattern=pattern, fate="refused", why=why, accepts=(*_NOTHING, *accepts))


def converted(pattern: str, by: str, why: str) -> KeyFate:
    """A function decides, with all other keys in sight."""
    return KeyFate(pattern=pattern, fate="converted", why=why, by=by)


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    text = pattern.replace(".", r"\.")
    if text.endswith(r"\.*"):
        text = text.removesuffix(r"\.*") + r"(?P<rest>(?:\..+)?)"
    return re.compile(text)


def _both_bool(value: Any, known: Any) -> bool:
    """1 is True in Python; a number is no truth value here."""
    return isinstance(value, bool) == isinstance(known, bool)
