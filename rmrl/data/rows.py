"""Parquet, jsonl and csv files -> raw rows, each with its file and its number, streamed: a file is
never
held whole."""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rmrl.data import csv_cells
from rmrl.data.problems import shown
from rmrl.errors import ConfigError, DataError

JSONL_SUFFIXES = (".jsonl", ".ndjson", ".json")
READ_SUFFIXES = (".parquet", *JSONL_SUFFIXES, csv_cells.SUFFIX)
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
"""Folder of an example's data -> the script that writes it, with its arguments but --out."""
_BATCH_ROWS = 256
"""Small, because one row can be megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One raw row. Parquet and JSON types have become plain Python ones (dict, list, str, int,
    float, bool, None)."""

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
    """Bytes of the row, about: of its line in a jsonl file, of its share of the batch in Arrow's
    memory of a parquet file."""
    text_cells: bool = False
    """`fields` are the cells of a csv file, all of them text; `rmrl.data.csv_cells` knows what they
    mean."""

    @property
    def where(self) -> str:
        """For messages: "row 3" or "row 3 (line 4)"."""
        return (
            f"row {self.number}" if self.line is None else f"row {self.number} (line {self.line})"
        )


def file_list(value: object, key: str) -> list[Path]:
    """The files a configuration names: one path or a list of paths, `~` expanded. `key`
    (data.train_files) is named in errors.

    Raises ConfigError where the value is no path, DataError where a file does not exist or is of an
    unknown kind.
    """
    items = [value] if isinstance(value, (str, Path)) else value
    if (
        not isinstance(items, (list, tuple))
        or not items
        or not all(isinstance(i, (str, Path)) and str(i) for i in items)
    ):
        example = f"{key}=data/train.parquet or {key}=[a.parquet,b.jsonl]"
        raise ConfigError(
            f"{key}: saw {shown(value)}; need one path or a list of paths of parquet, jsonl"
            f" or csv files, e.g. {example}"
        )
    paths = [Path(item).expanduser() for item in items]
    for path in paths:
        _require_file(path, key)
    return paths


def file_labels(paths: Sequence[Path]) -> list[str]:
    """A short unique name per path: the file's name, with as many parents as it takes; a file
    listed twice gets "#2"."""
    parts = 1
    while _clash(paths, parts) and parts < max(len(p.parts) for p in paths):
        parts += 1
    seen: Counter[str] = Counter()
    labels = []
    for path in paths:
        name = _tail(path, parts)
        seen[name] += 1
        labels.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return labels


def read_rows(
    path: str | Path, *, label: str | None = None, wanted_N: np.ndarray | None = None
) -> Iterator[Row]:
    """Stream the rows of one file. `label` defaults to the file's name.

    `wanted_N`: bool, one per row: only these are parsed and yielded, nothing behind its end is
    read; None: all rows. Raises DataError where the file is missing, empty, unreadable, or a line
    is not one JSON object.
    """
    path = Path(path)
    _require_file(path, "the data set")
    count = 0
    for raw in _raw_rows(path, wanted_N):
        count += 1
        yield Row(
            file=str(path),
            label=label or path.name,
            number=raw.number,
            fields=raw.fields,
            line=raw.line,
            size=raw.size,
            text_cells=path.suffix == csv_cells.SUFFIX,
        )
    if not count and wanted_N is None:
        raise DataError(
            f"{path}: saw no rows; need at least one; write the file again or take it off the list"
        )


@dataclass(frozen=True, slots=True)
class _Raw:
    number: int
    fields: dict[str, Any]
    size: int
    line: int | None = None


def _require_file(path: Path, key: str) -> None:
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if p.suffix in READ_SUFFIXES)[:8]
        raise DataError(
            f"{key}: {path} is a folder; need a file; name the files in it, here:"
            f" {', '.join(inside) or 'no data file at all'}"
        )
    if not path.exists():
        raise DataError(
            f"{key}: {path} does not exist (looked in {path.absolute().parent}); need a parquet,"
            f" jsonl or csv file; {_maker(path) or 'check the path'}"
        )
    if path.suffix not in READ_SUFFIXES:
        known = ", ".join(READ_SUFFIXES)
        raise DataError(
            f"{key}: {path} ends in '{path.suffix}'; need one of {known}; convert or rename the"
            " file"
        )


def _raw_rows(path: Path, wanted_N: np.ndarray | None) -> Iterator[_Raw]:
    if path.suffix == ".parquet":
        return _read_parquet(path, wanted_N)
    if path.suffix == csv_cells.SUFFIX:
        return _read_csv(path, wanted_N)
    return _read_jsonl(path, wanted_N)


def _maker(path: Path) -> str:
    """Name the command of the project's checkout that writes the data of an example, else ""."""
    script = EXAMPLE_SCRIPTS.get(path.parent.name)
    if script is None:
        return ""
    return f"in the project's checkout `python {script} --out {path.parent}` makes it"


def _read_parquet(path: Path, wanted_N: np.ndarray | None) -> Iterator[_Raw]:
    batches = _parquet_batches(path)
    first = 0
    while wanted_N is None or first < len(wanted_N):
        try:
            batch = next(batches, None)
            if batch is None:
                return
            numbers = _wanted(wanted_N, first, len(batch))
            rows = (
                batch.take(pa.array(numbers - first)).to_pylist(maps_as_pydicts="strict")
                if len(numbers)
                else []
            )
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise _unreadable(path, "parquet", error) from error
        size = batch.nbytes // max(len(batch), 1)
        for number, fields in zip(numbers, rows, strict=True):
            yield _Raw(int(number), fields, size)
        first += len(batch)


def _wanted(wanted_N: np.ndarray | None, first: int, count: int) -> np.ndarray:
    """Numbers of the wanted rows among `count` rows from `first` on."""
    if wanted_N is None:
        return np.arange(first, first + count)
    return first + np.flatnonzero(wanted_N[first : first + count])


def _parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=_BATCH_ROWS)


def _read_jsonl(path: Path, wanted_N: np.ndarray | None) -> Iterator[_Raw]:
    number = -1
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                number += 1
                if wanted_N is None or (number < len(wanted_N) and wanted_N[number]):
                    yield _Raw(number, _json_object(text, path, line), len(text), line)
                elif number >= len(wanted_N):
                    return
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, "UTF-8 jsonl", error) from error


def _read_csv(path: Path, wanted_N: np.ndarray | None) -> Iterator[_Raw]:
    try:
        last = None if wanted_N is None else len(wanted_N)
        for number, (line, cells) in enumerate(islice(csv_cells.read_records(path), last)):
            if wanted_N is None or wanted_N[number]:
                size = sum(len(cell) for cell in cells.values())
                yield _Raw(number, dict(cells), size, line)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, "UTF-8 csv", error) from error


def _json_object(text: str, path: Path, line: int) -> dict[str, Any]:
    need = "need one JSON object per line"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = (
            "the file looks like one indented JSON value; write one object per line"
            if text.strip() in "[{"
            else "mend the line"
        )
        raise DataError(
            f"{path} line {line}: saw {shown(text.strip())}, which is not JSON ({error}); {need};"
            f" {hint}"
        ) from error
    if not isinstance(value, dict):
        raise DataError(
            f"{path} line {line}: saw {shown(value)}; {need}; write the rows one under the other,"
            " without an outer list"
        )
    return value


def _unreadable(path: Path, kind: str, error: Exception) -> DataError:
    size = path.stat().st_size if path.exists() else 0
    words = (str(error).splitlines() or [""])[0]
    return DataError(
        f"{path} ({size} bytes) cannot be read as {kind}: {type(error).__name__}: {words}; need a"
        f" whole {kind} file; write or copy it again"
    )


def _tail(path: Path, parts: int) -> str:
    return Path(*path.parts[-parts:]).as_posix()


def _clash(paths: Sequence[Path], parts: int) -> bool:
    distinct = list(dict.fromkeys(paths))
    return len({_tail(p, parts) for p in distinct}) < len(distinct)
