"""One row of the table of verl's keys: a key or a family of keys, and what becomes of it here."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

Fate = Literal["same", "renamed", "converted", "no effect", "refused", "unknown"]
_NOTHING: tuple[Hashable, ...] = (None, False, "")
"""Values of a refused key that request nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFate:
    """The treatment of the keys that `pattern` matches. A key without a row is one of rmrl's own, or
    unknown."""

    pattern: str
    """A dotted key. `(a|b)` is one of several names, `.*` at the end the section and all keys below
    it."""
    fate: Fate
    why: str
    """renamed, converted: what it means here. no effect: why leaving it out changes no result.
    refused: what to use instead."""
    target: str = ""
    """renamed: the key here; `\\1` stands for a group of the pattern, `.*` at the end for the text
    that the pattern's own `.*` matched."""
    accepts: tuple[Hashable, ...] = ()
    """Values that change nothing, or request what always holds here: dropped silently."""
    by: str = ""
    """converted: name of the function in CONVERSIONS."""

    def matches(self, key: str) -> bool:
        """Return whether the row covers `key`."""
        return _regex(self.pattern).fullmatch(key) is not None

    def renamed(self, key: str) -> str:
        """Return rmrl's key for a key that matches."""
        match = _regex(self.pattern).fullmatch(key)
        assert match is not None, (self.pattern, key)
        assert self.target, self.pattern
        if not self.target.endswith(".*"):
            return match.expand(self.target)
        return match.expand(self.target.removesuffix(".*")) + match["rest"]

    def accepts_value(self, value: Any) -> bool:
        """Return whether `value` is one of `accepts`. A truth value never equals a number."""
        if not isinstance(value, Hashable):
            return False
        for accepted in self.accepts:
            if value == accepted and isinstance(value, bool) == isinstance(accepted, bool):
                return True
        return False


def fate_of(key: str, table: Sequence[KeyFate]) -> KeyFate | None:
    """Return the first row that matches; None for a key without a row."""
    return next((row for row in table if row.matches(key)), None)


def renamed(
    pattern: str, target: str, why: str = "", *, accepts: tuple[Hashable, ...] = ()
) -> KeyFate:
    """Row of a key that has the same meaning and values under another name."""
    return KeyFate(pattern=pattern, fate="renamed", why=why, target=target, accepts=accepts)


def no_effect(pattern: str, why: str, *, accepts: tuple[Hashable, ...] = ()) -> KeyFate:
    """Row of a key that can be left out without changing a result."""
    return KeyFate(pattern=pattern, fate="no effect", why=why, accepts=accepts)


def refused(pattern: str, why: str, *, accepts: tuple[Hashable, ...] = ()) -> KeyFate:
    """Row of a key whose values, apart from `accepts`, are errors."""
    return KeyFate(pattern=pattern, fate="refused", why=why, accepts=(*_NOTHING, *accepts))


def converted(pattern: str, by: str, why: str) -> KeyFate:
    """Row of a key that a function converts, which reads all other keys too."""
    return KeyFate(pattern=pattern, fate="converted", why=why, by=by)


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    text = pattern.replace(".", r"\.")
    if text.endswith(r"\.*"):
        text = text.removesuffix(r"\.*") + r"(?P<rest>(?:\..+)?)"
    return re.compile(text)
