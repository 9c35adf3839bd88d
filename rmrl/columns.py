"""Columns of text that line up, for the tables of the console."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """Return one line per row, indented by two spaces, with columns of equal width. The columns
    with the numbers `right` are aligned to the right.

    Example:
        aligned([("name", "GiB"), ("judge", "4")], right=(1,))   # ["  name   GiB", "  judge    4"]
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        line = ""
        for number, cell in enumerate(row):
            padded = cell.ljust(widths[number])
            if number in right:
                padded = cell.rjust(widths[number])
            line += f"  {padded}"
        lines.append(line.rstrip())
    return lines
