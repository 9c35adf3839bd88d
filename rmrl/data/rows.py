"""Parquet, jsonl and csv files streamed as raw rows, each with its file and number. A file is never
in memory as a whole."""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from rmrl.data import csv_cells, hub
from rmrl.data.json_texts import UNREADABLE, json_texts
from rmrl.data.problems import shown
from rmrl.data.table_files import holds_table, saved_files, table_batches, table_length
from rmrl.data.traces.table import as_row
from rmrl.errors import ConfigError, DataError, first_line
from rmrl.files import DATA_SUFFIXES, is_csv

EXAMPLE_SCRIPTS = {
    "arithmetic": "examples/arithmetic/make_data.py",
    "demo": "data_preprocess/arithmetic.py",
    "gsm8k": "data_preprocess/gsm8k.py",
    "grpo_math": "data_preprocess/arithmetic.py --style boxed",
    "math": "data_preprocess/hendrycks_math.py",
    "limr": "data_preprocess/limr.py",
    "rider": "data_preprocess/rider.py --source examples/rider/dialogues.jsonl",
    "sft_then_grpo": "data_preprocess/arithmetic.py",
}
"""Folder of an example's data -> the script that writes it, with its arguments except --out."""
_BATCH_ROWS = 256
"""Small, because one row can be megabytes."""


@dataclass(slots=True, kw_only=True)
class Row:
    """One raw row, with plain Python types (dict, list, str, int, float, bool, None)."""

    file: str
    """Path as the user typed it."""
    label: str
    """Short name of the file, unique within one data set; starts the prompt's id."""
    number: int
    """0 is the first row (as in pandas' `iloc`); blank lines of a jsonl file do not count."""
    fields: dict[str, Any]
    line: int | None = None
    """Line of a jsonl or csv file on which the row begins, 1 is the first."""
    size: int = 0
    """Approximate bytes of the row: its line in a jsonl file, its share of the Arrow batch of a
    parquet file."""
    text_cells: bool = False
    """Whether `fields` are the text cells of a csv file, which `rmrl.data.csv_cells` converts."""
    is_plain: bool = False
    """Whether `fields` hold nothing but plain Python types, as the rows of files do."""
    empty_prompt: bool = False
    """Whether the prompt may be without text, as that of a base model's free generation is."""
    problem: str = ""
    """Why the row could not be read, of a row without `fields`; "" for all others."""
    text: str = ""
    """The line of a row with a `problem`, where there is one."""

    @property
    def where(self) -> str:
        """Position for messages: "row 3" or "row 3 (line 4)"."""
        if self.line is None:
            return f"row {self.number}"
        return f"row {self.number} (line {self.line})"


_Entry = TypeVar("_Entry")
_RowOf = Callable[..., Row]
"""A file's row from what differs between its rows."""


def file_list(value: object, key: str) -> list[Path]:
    """Return a configuration value's files: one path or several in a list, `~` expanded, a pattern
    such as shards/*.parquet as its files in alphabetical order, a folder that the package datasets
    wrote (`save_to_disk`) as the files in it; hf://name/split is read into a file. `key`
    (data.train_files) appears in errors.

    Raises ConfigError where the value is not a path, DataError where a file does not exist or has
    an unknown kind, and as `hub_file` does.
    """
    items = [value] if isinstance(value, (str, Path)) else value
    paths: list[Path] = []
    for item in items if isinstance(items, (list, tuple)) else ():
        if not isinstance(item, (str, Path)) or not str(item):
            paths.clear()
            break
        if str(item).startswith(hub.SCHEME):
            paths.append(hub.hub_file(str(item), key))
        else:
            path = Path(item).expanduser()
            found = [path]
            if re.search(r"[*?[]", str(path)) and not path.exists():
                found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
            for file in found or [path]:
                paths += saved_files(file, key) or [file]
    if not paths:
        example = f"{key}=data/train.parquet or {key}=[a.parquet,b.jsonl]"
        raise ConfigError(
            f"{key}: saw {shown(value)}; need one path or a list of paths of parquet, jsonl"
            f" or csv files, e.g. {example}"
        )
    for path in paths:
        _require_file(path, key)
    return paths


def file_labels(paths: Sequence[Path]) -> list[str]:
    """Return a short unique name per path: the file's name, with parents where names repeat. A
    file listed twice gets "#2"."""
    distinct = set(paths)
    longest = max((len(path.parts) for path in distinct), default=0)
    names: list[str] = []
    for parts in range(1, longest + 1):
        names = [Path(*path.parts[-parts:]).as_posix() for path in paths]
        if len(set(names)) == len(distinct):
            break
    counts: Counter[str] = Counter()
    labels: list[str] = []
    for name in names:
        counts[name] += 1
        labels.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return labels


def read_rows(
    path: str | Path,
    *,
    label: str | None = None,
    wanted_N: np.ndarray | None = None,
    with_problems: bool = False,
) -> Iterator[Row]:
    """Stream one file's rows. `label` defaults to the file's name.

    `wanted_N`: bool per row. Only these rows are parsed and yielded, and rows behind its end are
    not read. None: all rows. Raises DataError where the file is missing, empty, unreadable, or a
    line is not one JSON object; `with_problems` yields such lines as rows with a `problem`.
    """
    path = Path(path)
    _require_file(path, "the data set")
    read = _read_jsonl
    if holds_table(path):
        read = _read_table
    elif is_csv(path):
        read = _read_csv
    row_of = partial(
        Row,
        file=str(path),
        label=label or path.name,
        text_cells=is_csv(path),
        is_plain=True,
    )
    count = 0
    for row in read(path, wanted_N, row_of):
        count += 1
        if row.problem and not with_problems:
            raise DataError(row.problem)
        yield row
    if not count and wanted_N is None:
        raise _empty(path)


def count_rows(path: Path) -> int:
    """Return how many rows a file has, readable ones and others. Raises DataError as `read_rows`
    does, though not for a line."""
    _require_file(path, "the data set")
    try:
        if holds_table(path):
            count = table_length(path)
        elif is_csv(path):
            count = sum(1 for _ in csv_cells.read_records(path))
        else:
            count = sum(1 for _ in json_texts(path))
    except (pa.ArrowException, *UNREADABLE, ValueError) as error:
        raise _unreadable(path, path.suffix.removeprefix("."), error) from error
    if not count:
        raise _empty(path)
    return count


def _require_file(path: Path, key: str) -> None:
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir() if p.name.endswith(DATA_SUFFIXES))
        raise DataError(
            f"{key}: {path} is a folder; need a file; name the files in it, here:"
            f" {', '.join(names[:8]) or 'no data file at all'}, or give {path}/*.parquet"
        )
    if not path.exists():
        advice = "check the path"
        if re.match("https?:/", str(path)):
            advice = "download it first, or give hf://owner/name/split"
        if path.parent.name in EXAMPLE_SCRIPTS:
            script = EXAMPLE_SCRIPTS[path.parent.name]
            advice = f"in the project's checkout `python {script} --out {path.parent}` makes it"
        raise DataError(
            f"{key}: {path} does not exist (looked in {path.absolute().parent}); need a parquet,"
            f" jsonl or csv file; {advice}"
        )
    if not path.name.endswith(DATA_SUFFIXES):
        raise DataError(
            f"{key}: {path} ends in '{path.suffix}'; need one of {', '.join(DATA_SUFFIXES)};"
            " convert or rename the file"
        )


def _read_table(path: Path, wanted_N: np.ndarray | None, row_of: _RowOf) -> Iterator[Row]:
    batches = table_batches(path, _BATCH_ROWS)
    first = 0
    while wanted_N is None or first < len(wanted_N):
        try:
            batch = next(batches, None)
            if batch is None:
                return
            positions = np.arange(len(batch))
            if wanted_N is not None:
                positions = np.flatnonzero(wanted_N[first : first + len(batch)])
            rows: list[dict[str, Any]] | None = []
            if len(positions):
                # pa.array would import pandas
                places = [None, pa.py_buffer(positions)]
                indices = pa.Int64Array.from_buffers(pa.int64(), len(positions), places)
                rows = _python_rows(batch.take(indices))
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise _unreadable(path, path.suffix.removeprefix("."), error) from error
        size = batch.nbytes // max(len(batch), 1)
        if rows is None:
            for position in positions.tolist():
                yield _table_row(batch.slice(position, 1), first + position, path, row_of)
        else:
            for position, fields in zip(positions.tolist(), rows, strict=True):
                yield row_of(number=first + position, fields=fields, size=size)
        first += len(batch)


def _python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]] | None:
    """Return the rows as Python values, None where some row has no such value (a date behind the
    year 9999, a map with a key twice)."""
    try:
        return batch.to_pylist(maps_as_pydicts="strict")
    except (pa.ArrowException, ValueError, KeyError, OverflowError):
        return None


def _table_row(row: pa.RecordBatch, number: int, path: Path, row_of: _RowOf) -> Row:
    """Read one row by itself."""
    try:
        fields = row.to_pylist(maps_as_pydicts="strict")[0]
    except (pa.ArrowException, ValueError, KeyError, OverflowError) as error:
        problem = (
            f"{path} row {number} cannot be read ({type(error).__name__}: {first_line(error)});"
            " need values that Python has; correct or drop the row"
        )
        return row_of(number=number, fields={}, size=row.nbytes, problem=problem)
    return row_of(number=number, fields=fields, size=row.nbytes)


def _read_jsonl(path: Path, wanted_N: np.ndarray | None, row_of: _RowOf) -> Iterator[Row]:
    try:
        for number, (line, text) in _wanted(json_texts(path), wanted_N):
            place = f"{path} line {line}"
            read = partial(row_of, number=number, line=line, size=len(text))
            # A byte that is not UTF-8 is a problem of its line alone.
            try:
                _require_utf8(text, place, "jsonl")
                fields = as_row(_json_object(text, place), place)
            except DataError as error:
                yield read(fields={}, problem=str(error), text=text)
            else:
                yield read(fields=fields)
    except UNREADABLE as error:
        raise _unreadable(path, "jsonl", error) from error


def row_texts(path: Path, wanted_N: np.ndarray | None) -> Iterator[str]:
    """Yield the wanted lines in a file that `read_rows` has read line by line. Raises DataError
    where it cannot be read."""
    try:
        for _, (_, text) in _wanted(json_texts(path), wanted_N):
            yield text.strip()
    except UNREADABLE as error:
        raise _unreadable(path, "jsonl", error) from error


def _read_csv(path: Path, wanted_N: np.ndarray | None, row_of: _RowOf) -> Iterator[Row]:
    try:
        for number, (line, cells) in _wanted(csv_cells.read_records(path), wanted_N):
            read = partial(row_of, number=number, line=line)
            if isinstance(cells, DataError):
                yield read(fields={}, problem=str(cells))
                continue
            text = "".join(cells.values())
            try:
                _require_utf8(text, f"{path} line {line}", "csv")
            except DataError as error:
                line_text = ",".join(cells.values())
                yield read(fields={}, size=len(text), problem=str(error), text=line_text)
            else:
                yield read(fields=cells, size=len(text))
    except (*UNREADABLE, UnicodeDecodeError) as error:
        raise _unreadable(path, "UTF-8 csv", error) from error


def _wanted(rows: Iterable[_Entry], wanted_N: np.ndarray | None) -> Iterator[tuple[int, _Entry]]:
    """Yield the wanted rows with their numbers."""
    if wanted_N is None:
        yield from enumerate(rows)
        return
    for number, row in enumerate(islice(rows, len(wanted_N))):
        if wanted_N[number]:
            yield number, row


def _require_utf8(text: str, place: str, kind: str) -> None:
    """Raise DataError for a text with bytes that `surrogateescape` has kept."""
    if text.isascii():
        return
    try:
        text.encode("utf-8", errors="surrogateescape").decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place} cannot be read as UTF-8 {kind} (UnicodeDecodeError: {error}); need a file in"
            " UTF-8; write it again with that encoding"
        ) from error


def _json_object(text: str, place: str) -> dict[str, Any]:
    need = "need one JSON object per line"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        advice = "correct the line"
        if text.strip() in "[{":
            advice = "the file looks like one indented JSON value; write one object per line"
        raise DataError(
            f"{place}: saw {shown(text.strip())}, which is not JSON ({error}); {need}; {advice}"
        ) from error
    if not isinstance(value, dict):
        raise DataError(
            f"{place}: saw {shown(value)}; {need}; write one row per line, without an outer list"
            " (one list of objects is read from a file that ends in .json)"
        )
    return value


def _empty(path: Path) -> DataError:
    return DataError(
        f"{path}: saw no rows; need at least one; write the file again or remove it from the list"
    )


def _unreadable(path: Path, kind: str, error: Exception) -> DataError:
    size = path.stat().st_size if path.exists() else 0
    return DataError(
        f"{path} ({size} bytes) cannot be read as {kind}: {type(error).__name__}:"
        f" {first_line(error)}; need a complete {kind} file; write or copy it again"
    )
