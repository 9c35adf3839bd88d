"""Text columns that line up, for the console's tables."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from itertools import zip_longest

WIDTH = 100
"""Characters of a line. A table that is wider goes on below, with its first column repeated."""
_GAP = "  "
_NAME = 36
"""Characters of a first column where a table is too wide."""


def aligned(
    rows: Sequence[Sequence[str]], *, right: Collection[int] = (), indent: str = _GAP
) -> list[str]:
    """Return one line per row with equally wide columns, none beyond WIDTH. The columns with the
    numbers `right` are aligned to the right.

    What does not fit stands in further blocks, an empty line between two; long cells are wrapped
    there, and long words lose their middle.

    Example:
        aligned([("name", "GiB"), ("judge", "4")], right=(1,))   # ["  name   GiB", "  judge    4"]
    """
    width = WIDTH - len(indent)
    widths = _widths(rows)
    if _across(widths) <= width:
        return _lines(rows, widths, range(len(widths)), right, indent)
    first = min(_NAME, widths[0])
    narrow: list[list[str]] = []
    for row in rows:
        narrow += _wrapped(row, [first, *[width - first - len(_GAP)] * (len(row) - 1)])
    widths = _widths(narrow)
    blocks: list[list[int]] = [[0]]
    for number in range(1, len(widths)):
        if _across([widths[each] for each in (*blocks[-1], number)]) > width:
            blocks.append([0])
        blocks[-1].append(number)
    lines: list[str] = []
    for numbers in blocks:
        if lines:
            lines.append("")
        lines += filter(str.strip, _lines(narrow, widths, numbers, right, indent))
    return lines


def middle_out(text: str, most: int) -> str:
    """Return the text, or its beginning and end with `...` between them: at most `most`
    characters."""
    if len(text) <= most:
        return text
    head = (most - 3) // 2
    return f"{text[:head]}...{text[len(text) - (most - 3 - head) :]}"


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Return a row as several whose cells hold at most `widths` characters."""
    cells: list[list[str]] = []
    for cell, width in zip(row, widths, strict=True):
        words: list[str] = [middle_out(word, width) for word in cell.split(" ")]
        cells.append(textwrap.wrap(" ".join(words), width) or [""])
    return list(map(list, zip_longest(*cells, fillvalue="")))


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _lines(
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    numbers: Sequence[int],
    right: Collection[int],
    indent: str,
) -> list[str]:
    lines: list[str] = []
    for row in rows:
        cells: list[str] = []
        for number in numbers:
            padded = row[number].ljust(widths[number])
            if number in right:
                padded = row[number].rjust(widths[number])
            cells.append(padded)
        lines.append((indent + _GAP.join(cells)).rstrip())
    return lines
