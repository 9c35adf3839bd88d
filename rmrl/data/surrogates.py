"""Lone surrogates: half a UTF-16 pair, U+D800 to U+DFFF, that JSON can state ("\\ud83d") and UTF-8
cannot encode. Texts that were cut between the halves hold them, and tokenizers refuse them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SURROGATE = re.compile("[\ud800-\udfff]")

Value = TypeVar("Value")


def without_surrogates(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows with U+FFFD for every lone surrogate in their values' texts, at any depth,
    and the positions where a row had one."""
    clean_rows: list[dict[str, Any]] = []
    positions: list[int] = []
    for position, row in enumerate(rows):
        values = {name: replaced(value) for name, value in row.items()}
        if values != row:
            positions.append(position)
        clean_rows.append(values)
    return clean_rows, positions


def replaced(value: Value) -> Value:
    """Return the value with U+FFFD for every lone surrogate in its texts, at any depth: one
    character for one, so that places in a text stay. A value without any is returned itself."""
    found: Any = value
    if isinstance(value, str):
        # Whether a text is ASCII is known without reading it; most are.
        if not value.isascii() and _SURROGATE.search(value):
            found = _SURROGATE.sub(REPLACEMENT, value)
    elif isinstance(value, list | tuple):
        inner = [replaced(each) for each in value]
        if any(new is not old for new, old in zip(inner, value, strict=True)):
            found = inner if isinstance(value, list) else tuple(inner)
    elif isinstance(value, dict):
        entries = {replaced(key): replaced(each) for key, each in value.items()}
        for key, each in value.items():
            if key not in entries or entries[key] is not each:
                found = entries
    return found


def escaped(text: str) -> str:
    """Return the text with an escape, such as \\ud83d, for every lone surrogate. In a JSON string
    the escape is read back as the surrogate."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")
