"""Lone surrogates: halves of a UTF-16 pair, U+D800 to U+DFFF, that JSON can state ("\\ud83d") and
UTF-8 cannot encode. Texts that were cut between the halves hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows with U+FFFD for every lone surrogate in the texts of their values, at any
    depth, and the positions of the rows that had one."""
    clean_rows: list[dict[str, Any]] = []
    positions: list[int] = []
    for position, row in enumerate(rows):
        values = {name: _replaced(value) for name, value in row.items()}
        if values != row:
            positions.append(position)
        clean_rows.append(values)
    return clean_rows, positions


def escaped(text: str) -> str:
    """Return the text with an escape, such as \\ud83d, for every lone surrogate. In a JSON string
    the escape is read back as the surrogate."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        if value.isascii():  # known without reading the text; most texts are
            return value
        return _SURROGATE.sub(REPLACEMENT, value)
    if isinstance(value, list):
        return list(map(_replaced, value))
    if isinstance(value, dict):
        return {_replaced(key): _replaced(inner) for key, inner in value.items()}
    return value
