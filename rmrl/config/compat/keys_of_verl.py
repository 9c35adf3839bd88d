"""verl's key table, read from keys_of_verl.yaml beside this file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from rmrl.config.compat.yaml_tables import read_rows

Fate = Literal["same", "renamed", "converted", "no effect", "refused", "unknown"]
_ENTRY_OF: dict[Fate, str] = {
    "renamed": "target",
    "converted": "by",
    "no effect": "why",
    "refused": "why",
}
"""Word of a row in the file -> the field of `KeyFate` that its text fills."""
_NOTHING: tuple[Hashable, ...] = (None, False, "")
"""Values of a refused key that request nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFate:
    """A rule for the keys that `pattern` matches. A key without a row is rmrl's own, or unknown."""

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
        """Return whether `value` is in `accepts`. A truth value never equals a number."""
        if not isinstance(value, Hashable):
            return False
        for accepted in self.accepts:
            if value == accepted and isinstance(value, bool) == isinstance(accepted, bool):
                return True
        return False


def fate_of(key: str, table: Sequence[KeyFate]) -> KeyFate | None:
    """Return the first row that matches, None for a key without a row."""
    return next((row for row in table if row.matches(key)), None)


def _row(entries: Mapping[str, Any]) -> KeyFate:
    fate: Fate = next(fate for fate in _ENTRY_OF if fate in entries)
    nothing = _NOTHING if fate == "refused" else ()
    texts = {"why": entries.get("why", ""), _ENTRY_OF[fate]: entries[fate]}
    return KeyFate(
        pattern=entries["key"],
        fate=fate,
        why=texts["why"],
        target=texts.get("target", ""),
        accepts=(*nothing, *entries.get("accepts", ())),
        by=texts.get("by", ""),
    )


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    text = pattern.replace(".", r"\.")
    if text.endswith(r"\.*"):
        text = text.removesuffix(r"\.*") + r"(?P<rest>(?:\..+)?)"
    return re.compile(text)


SECTIONS: dict[str, tuple[KeyFate, ...]] = {
    title: tuple(map(_row, rows)) for title, rows in read_rows("keys_of_verl").items()
}
"""Heading -> rows, in the search's order."""
TABLE: tuple[KeyFate, ...] = tuple(itertools.chain.from_iterable(SECTIONS.values()))
"""All rows. The first row that matches a key counts."""
