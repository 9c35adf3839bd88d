"""A first pass over a scoring job's rows: how many there are, with which types and groups, which
cannot be read, and which belong to this shard."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.groups import GroupTable
from rmrl.data.problems import BadRow, file_error
from rmrl.data.responses import AnsweredRow, CountTokens, ResponseReader, numbered_rows
from rmrl.data.rows import file_labels, file_list
from rmrl.data.sample import sampled_rows
from rmrl.data.source_table import JsonTypes, unified
from rmrl.data.table_files import holds_table, table_schema
from rmrl.errors import ConfigError, DataError

_RESPONSES = {True: "a list of responses", False: "one response"}
_WINDOW_BYTES = 64 * 2**20
_EXAMPLES = 3

_SCORED = 1
_BAD = 2
_OF_OTHERS = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One job's rows among several jobs: every `count`-th row, or group of rows, from `number`."""

    number: int = 1
    """1 to `count`."""
    count: int = 1
    by_group: bool = False
    """Whether a group's rows are in one shard."""

    def holds(self, position: int) -> bool:
        """Return whether the row, or the group, at this position (from 0) is in the shard."""
        return position % self.count == self.number - 1


def shard_numbers(text: str) -> tuple[int, int]:
    """Return i and n from "i/n". Raises ConfigError for any other text, and unless 1 <= i <= n."""
    match = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", text)
    if match is None:
        raise ConfigError(
            f"shard={text!r}: need i/n, the i-th of n parts of the rows, e.g. shard=1/4"
        )
    number = int(match[1])
    count = int(match[2])
    if not 1 <= number <= count:
        raise ConfigError(
            f"shard={text}: i counts from 1 to n; need one of shard=1/{max(count, 1)} to"
            f" shard={max(count, 1)}/{max(count, 1)}"
        )
    return number, count


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """How many rows to score, and their types. Rows are numbered without those that are not."""

    rows: int
    responses: int
    rows_of_files: tuple[int, ...]
    """Number of rows to score in each file, 0 for files behind `data.max_rows`."""
    several: bool
    """Whether rows hold lists of responses."""
    schema: pa.Schema | None
    """Schema of the rows in parquet, None for other formats."""
    columns: tuple[str, ...] = ()
    """All rows' column names, in the order of their first appearance."""
    groups: GroupTable | None = None
    """None without `by_group`."""
    masks: tuple[np.ndarray | None, ...] = ()
    """Per file a bool for each row that was read, whether it is scored. None: all are."""
    bad_masks: tuple[np.ndarray | None, ...] = ()
    """Per file a bool for each row that was read, whether it is bad and in this shard. None: no row
    is."""
    bad_rows: int = 0
    """Number of these rows."""


@dataclass(slots=True)
class _FileRows:
    """Each row's fate in one file."""

    fates: array[int] = field(default_factory=lambda: array("b"))
    """One byte per row."""

    def mask(self, sampled: np.ndarray | None) -> np.ndarray | None:
        """Bool per row: scored, None where all are. `sampled`: the file's rows that have a fate.
        None: all."""
        scored = self._fates() == _SCORED
        if sampled is not None:
            return _spread(scored, sampled)
        return None if scored.all() else scored

    def bad_mask(self, sampled: np.ndarray | None) -> np.ndarray | None:
        """Bool per row: bad, None where no row is. `sampled`: as in `mask`."""
        bad = self._fates() == _BAD
        if not bad.any():
            return None
        return bad if sampled is None else _spread(bad, sampled)

    def count(self, fate: int) -> int:
        """How many rows have this fate."""
        return int((self._fates() == fate).sum())

    def _fates(self) -> np.ndarray:
        return np.array(self.fates, dtype=np.int8)


def _spread(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return `values` at the places that are true, and false elsewhere."""
    spread = np.zeros(len(places), dtype=bool)
    spread[places] = values
    return spread


def survey(
    settings: ScoreDataConfig,
    *,
    for_parquet: bool,
    by_group: bool = False,
    shard: Shard | None = None,
    count_tokens: CountTokens | None = None,
) -> Survey:
    """Read every row once, so that a malformed one stops a job before anything is scored and not
    after hours; with data.on_bad_row=quarantine it is counted instead.

    Raises `answered_rows`' errors, DataError where no row is left to score and, with `for_parquet`,
    where columns mix types or only some rows hold several responses. `by_group` records each row's
    group. A shard's types and columns are all rows'.
    """
    paths = file_list(settings.files, "data.files")
    counts = _Counts(shard or Shard(), files=len(paths), by_group=by_group)
    types = _Types() if for_parquet else None
    with_groups = by_group or counts.shard.by_group
    reader = ResponseReader(settings, count_tokens, with_groups=with_groups)
    for read, (position, row) in enumerate(numbered_rows(reader, paths)):
        if isinstance(row, BadRow):
            counts.add_bad(row, read, file=position)
            continue
        if types is not None:
            types.add(row)
        counts.add(row, file=position)
    rows_of_files = tuple(file.count(_SCORED) for file in counts.files)
    if not sum(rows_of_files):
        raise _nothing_left(settings, counts)
    samples = sampled_rows(settings, paths)
    masks: list[np.ndarray | None] = []
    bad_masks: list[np.ndarray | None] = []
    for file, sampled in zip(counts.files, samples, strict=True):
        masks.append(file.mask(sampled))
        bad_masks.append(file.bad_mask(sampled))
    return Survey(
        rows=sum(rows_of_files),
        responses=counts.responses,
        rows_of_files=rows_of_files,
        several=counts.several,
        schema=types.schema(paths) if types is not None else None,
        columns=tuple(counts.columns),
        groups=counts.groups,
        masks=tuple(masks),
        bad_masks=tuple(bad_masks),
        bad_rows=sum(file.count(_BAD) for file in counts.files),
    )


def rows_to_score(
    settings: ScoreDataConfig,
    surveyed: Survey,
    *,
    done: int = 0,
    by_group: bool = True,
    with_groups: bool = True,
    count_tokens: CountTokens | None = None,
) -> Iterator[AnsweredRow]:
    """Yield the rows in scoring order, without the first `done`. `with_groups`: as in
    `ResponseReader`.

    This is the files' order, unless the survey has groups and some groups' rows are not
    consecutive: then, `by_group`, rows come group after group, and the files are read once for
    every 64 MiB, which bounds the memory.
    """
    reader = ResponseReader(settings, count_tokens, with_groups=with_groups)
    if not by_group or surveyed.groups is None or not surveyed.groups.scattered:
        wanted_N = np.arange(surveyed.rows) >= done
        yield from _selected_rows(reader, surveyed, wanted_N)
        return
    order_N = surveyed.groups.order()[done:]
    for window in surveyed.groups.windows(order_N, most_bytes=_WINDOW_BYTES):
        wanted_N = np.zeros(surveyed.rows, dtype=bool)
        wanted_N[window] = True
        selected = _selected_rows(reader, surveyed, wanted_N)
        rows = {row.number: row for row in selected}
        for number in window:
            yield rows.pop(int(number))


def bad_rows(settings: ScoreDataConfig, surveyed: Survey) -> Iterator[BadRow]:
    """Yield the shard's bad rows, in the files' order."""
    paths = file_list(settings.files, "data.files")
    reader = ResponseReader(settings)
    for path, label, mask in zip(paths, file_labels(paths), surveyed.bad_masks, strict=True):
        if mask is not None:
            for row in reader.sorted_out(path, label, wanted_N=mask):
                if isinstance(row, BadRow):
                    yield row


def _selected_rows(
    reader: ResponseReader, surveyed: Survey, wanted_N: np.ndarray
) -> Iterator[AnsweredRow]:
    """Yield the rows where `wanted_N` is true, in the files' order."""
    paths = file_list(reader.settings.files, "data.files")
    first = 0
    for position, (path, label) in enumerate(zip(paths, file_labels(paths), strict=True)):
        count = surveyed.rows_of_files[position]
        wanted_in_file = wanted_N[first : first + count]
        if wanted_in_file.any():
            numbers = map(int, first + np.flatnonzero(wanted_in_file))
            mask = surveyed.masks[position]
            if mask is not None:
                places = np.flatnonzero(mask)[wanted_in_file]
                wanted_in_file = np.zeros(len(mask), dtype=bool)
                wanted_in_file[places] = True
            yield from reader.rows(path, label, numbers=numbers, wanted_N=wanted_in_file)
        first += count


class _Counts:
    """Facts about the rows read so far."""

    def __init__(self, shard: Shard, *, files: int, by_group: bool) -> None:
        self.shard = shard
        self.files = [_FileRows() for _ in range(files)]
        self.groups = GroupTable() if by_group else None
        self.columns: dict[str, None] = {}
        self.responses = 0
        self.several = False
        self.examples: list[BadRow] = []
        """The first bad rows."""
        self._number_of: dict[bytes, int] = {}

    def add(self, row: AnsweredRow, *, file: int) -> None:
        """Add a readable row."""
        self.columns |= dict.fromkeys(row.fields)
        self.several = self.several or row.several
        place = row.number
        if self.shard.by_group:
            place = self._number_of.setdefault(row.group, len(self._number_of))
        if not self.shard.holds(place):
            self.files[file].fates.append(_OF_OTHERS)
            return
        self.files[file].fates.append(_SCORED)
        self.responses += len(row.texts)
        if self.groups is not None:
            self.groups.add(row.group, responses=len(row.texts), size=row.size, file=file)

    def add_bad(self, row: BadRow, position: int, *, file: int) -> None:
        """Add a bad row; `position`: among the files' rows."""
        self.files[file].fates.append(_BAD if self.shard.holds(position) else _OF_OTHERS)
        if len(self.examples) < _EXAMPLES:
            self.examples.append(row)


class _Types:
    """All rows' column types, for parquet."""

    def __init__(self) -> None:
        self._several: bool | None = None
        self._of_json: dict[Path, JsonTypes] = {}

    def add(self, row: AnsweredRow) -> None:
        """Add a row. Raises DataError where it does not fit to those before it."""
        several = row.several if self._several is None else self._several
        if row.several != several:
            raise DataError(
                f"{row.prompt.id} holds {_RESPONSES[row.several]}, the rows before it"
                f" {_RESPONSES[several]}; parquet needs one type per column: write JSON lines"
                " (out=....jsonl), or score the files one by one"
            )
        self._several = several
        if not holds_table(row.file):
            self._of_json.setdefault(row.file, JsonTypes(row.file)).add(row.fields)

    def schema(self, paths: Sequence[Path]) -> pa.Schema:
        """Return all files' schema."""
        schemas: list[tuple[Path, pa.Schema]] = []
        for path in dict.fromkeys(paths):
            if holds_table(path):
                schemas.append((path, table_schema(path)))
            elif path in self._of_json:
                schemas.append((path, self._of_json[path].schema()))
        return unified(schemas)


def _nothing_left(settings: ScoreDataConfig, counts: _Counts) -> DataError:
    """Return the error for a job without rows."""
    shard = counts.shard
    if counts.columns:
        unit = "groups of rows" if shard.by_group else "readable rows"
        return DataError(
            f"shard={shard.number}/{shard.count} has no row to score: there are fewer {unit} than"
            " shards; give a smaller n"
        )
    if counts.examples:
        lines = [f"row {row.row}, {row.reason}" for row in counts.examples]
        return file_error(counts.examples[0].file, ["no row can be scored", *lines])
    return DataError(
        f"data.max_rows={settings.max_rows} leaves no row to score; give 1 or more, or -1 for all"
    )
