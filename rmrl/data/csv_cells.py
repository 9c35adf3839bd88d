"""csv files: records with the header row's names, and their cells' values.

The format is RFC 4180: cells are separated by commas, or by the tabs or semicolons that a header
without a comma has, a cell with a comma, a quote or a line break is enclosed in double quotes, and
a quote in it is doubled. Files are read and written record by record.

    an empty cell                    null; an empty text in the column of the response
    prompt, messages, rm_prompt...   a text, or JSON of a list of messages
    reward_model, extra_info         JSON of an object; the first may also be the reference itself
    responses                        JSON of a list of texts, or one text
    response_tokens, finish_reason   one value, or JSON of a list
    opens_thinking                   true or false
    any other column                 the text unchanged, even if it looks like JSON or a number
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from rmrl.data.column_names import DEFAULT_NAMES, NAMES_COLUMN, ColumnNames
from rmrl.data.json_text import json_text, parsed
from rmrl.errors import DataError
from rmrl.files import open_text

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Beginnings of cells that spreadsheets run."""

_LONGEST_CELL = 2**31 - 1
"""Characters. The csv module's own limit of 131,072 is shorter than a long response."""
_SEPARATORS = (",", "\t", ";")
_TEXTS = ("prompt", "response", "ground_truth", "detail_", "raw_", "rendered_", "status_", "steps_")
"""Prefixes of a scored file's columns that stay texts."""
_NAMED_TEXTS = ("prompt", "response", "reference")


def read_records(path: Path) -> Iterator[tuple[int, dict[str, str] | DataError]]:
    """Yield (the record's first line in the file, cells by column, or what is wrong with the
    record); blank lines are left out. A byte that is not UTF-8 is a lone surrogate in its cell.

    Raises DataError where the header is malformed, UnicodeDecodeError where it is not UTF-8, and an
    error in UNREADABLE.
    """
    csv.field_size_limit(_LONGEST_CELL)
    with open_text(path, newline="") as file:
        header = file.readline()
        separators = [mark for mark in _SEPARATORS if mark in header] or [","]
        reader = csv.reader(chain([header], file), strict=True, delimiter=separators[0])
        records = _records(reader, path)
        _, names = next(records, (1, []))
        if isinstance(names, DataError):
            raise names
        _check_header(names, path)
        for line, cells in records:
            if isinstance(cells, DataError):
                yield line, cells
            elif len(cells) != len(names):
                yield (
                    line,
                    DataError(
                        f"{path} line {line}: saw {len(cells)} cells; need {len(names)}, as many"
                        " as the header names; put a cell that holds a comma, a quote or a line"
                        " break in double quotes"
                    ),
                )
            else:
                yield line, dict(zip(names, cells, strict=True))


def values_of(cells: Mapping[str, str], names: ColumnNames = DEFAULT_NAMES) -> dict[str, Any]:
    """Convert a record's cells to what the same row has in a parquet file."""
    values: dict[str, Any] = {}
    for column, text in cells.items():
        name = names.name_of(column)
        if name == "response" and column != "responses":
            values[column] = text
        elif not text:
            values[column] = None
        else:
            values[column] = _value(name, text)
    return values


def scored_values_of(
    cells: Mapping[str, str], names: ColumnNames = DEFAULT_NAMES
) -> dict[str, Any]:
    """Convert the cells in a record with scores: like `values_of`, but numbers are parsed, and in a
    row with several `responses` each text column is a list."""
    values = values_of(cells, names)
    texts = () if isinstance(values.get("responses"), list) else _TEXTS
    for column, value in values.items():
        is_text = column.startswith(texts) or names.name_of(column) in _NAMED_TEXTS
        if isinstance(value, str) and not is_text and column != NAMES_COLUMN:
            values[column] = parsed(value)
    return values


class CsvWriter:
    """Writes rows and their added columns as csv: null is an empty cell. A number, truth value,
    list or mapping is JSON text. `escape_formulas`: an apostrophe stands before a text that a
    spreadsheet would take for a formula."""

    def __init__(
        self, path: Path, *, columns: Sequence[str], escape_formulas: bool = False
    ) -> None:
        self._escapes = escape_formulas
        # A lone surrogate cannot be UTF-8: it becomes its escape, such as \ud83d.
        self._file: TextIO = path.open("w", encoding="utf-8", errors="backslashreplace", newline="")
        self._columns = list(columns)
        self._writer = csv.writer(self._file)
        self._writer.writerow(self._columns)

    def write(self, rows: Sequence[Mapping[str, Any]], added: Mapping[str, Sequence[Any]]) -> None:
        """Write one record per row. A column that a row lacks is an empty cell."""
        for i, row in enumerate(rows):
            record = dict(row)
            for name, values in added.items():
                record[name] = values[i]
            cells: list[str] = []
            for name in self._columns:
                value = record.get(name)
                if value is None:
                    cells.append("")
                elif isinstance(value, list | dict | bool | int | float):
                    cells.append(json_text(value))
                elif self._escapes and str(value).startswith(FORMULAS):
                    cells.append("'" + str(value))
                else:
                    cells.append(str(value))
            self._writer.writerow(cells)

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


def _records(reader: Any, path: Path) -> Iterator[tuple[int, list[str] | DataError]]:
    """Yield each record, or what is wrong with it, with its first line."""
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            problem = DataError(
                f"{path} line {line}: saw a record that is not csv ({error}); need double quotes"
                " around a cell with a comma, a quote or a line break, and each quote in it twice;"
                " correct the line"
            )
            yield line, problem
            continue
        if cells is None:
            return
        if cells:
            yield line, cells


def _check_header(names: Sequence[str], path: Path) -> None:
    ",".join(names).encode("utf-8", errors="surrogateescape").decode("utf-8")
    need = "need a first line with the names of the columns, each once, e.g. prompt,response"
    if "" in names:
        raise DataError(
            f"{path}: saw a column without a name (column {names.index('') + 1} of {len(names)});"
            f" {need}; name it, or with pandas write the file with index=False"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: saw the column {twice[0]} more than once; {need}; rename one")


def _value(name: str, text: str) -> Any:
    """A cell's value where it is not empty."""
    if name in ("response_tokens", "finish_reason", "opens_thinking"):
        return parsed(text)
    if name in ("prompt", "messages", "rm_prompt") or name.startswith("rm_prompt_"):
        value = parsed(text)
        return value if is_message_list(value) else text
    kind = {"reward_model": dict, "extra_info": dict, "responses": list}.get(name)
    if kind is not None:
        value = parsed(text)
        return value if isinstance(value, kind) else text
    return text


def is_message_list(value: Any) -> bool:
    """Return whether `value` is a list with at least one mapping, each with a role."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(turn, Mapping) and "role" in turn for turn in value)
