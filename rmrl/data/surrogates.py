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
    if not _has_some(value):
        return value
    readable: Any = value
    if isinstance(value, str):
        readable = _SURROGATE.sub(REPLACEMENT, value)
    elif isinstance(value, list):
        readable = list(map(replaced, value))
    elif isinstance(value, tuple):
        readable = tuple(map(replaced, value))
    elif isinstance(value, dict):
        readable = {replaced(key): replaced(each) for key, each in value.items()}
    return readable


def _has_some(value: Any) -> bool:
    if isinstance(value, str):
        # Whether a text is ASCII is known without reading it; most are.
        return not value.isascii() and _SURROGATE.search(value) is not None
    if isinstance(value, dict):
        return any(map(_has_some, value)) or any(map(_has_some, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_some, value))


def escaped(text: str) -> str:
    """Return the text with an escape, such as \\ud83d, for every lone surrogate. In a JSON string
    the escape is read back as the surrogate."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")
