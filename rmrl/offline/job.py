"""A scoring job: finished rows are durable, and the same command resumes the job however the
process ended.

    with claim(checked) as job:
        job.add(batch, rewards, state)     batch after batch, in the order of `rows_to_score`
        job.close_part()                   make added rows durable; `add` calls it now and then
        job.scored(first, last)            added columns of rows first .. last - 1, for `assemble`
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rmrl.data.json_text import json_text
from rmrl.data.responses import AnsweredRow
from rmrl.data.row_index import Survey
from rmrl.data.table_writer import score_types
from rmrl.errors import DataError, OutputDirError
from rmrl.files import LockedError, digest_of, lock, put_in_place, unlock
from rmrl.logs import write_to
from rmrl.offline.check_scoring import CheckedScoring, refuse_existing
from rmrl.offline.identity import Identity, identity_of, what_differs
from rmrl.offline.manifest import (
    LOCK_FILE,
    MANIFEST_FILE,
    Manifest,
    Part,
    log_file,
    parts_folder,
    read_manifest,
)
from rmrl.offline.score_columns import ROW, SEVERAL, score_table
from rmrl.offline.selections import Rewards
from rmrl.offline.summary import Summary
from rmrl.types import RewardBatch

_log = logging.getLogger(__name__)


PART_ROWS = 20_000
PART_BYTES = 64 * 2**20
PART_SECONDS = 20.0
"""A part is closed at this number of rows or bytes, or at this age. The first part after a start is
closed at once, so that a disk that cannot be written is noticed early."""

_PARTIAL = "out.partial"
_LINES_PARTIAL = "lines.partial"
_LISTED = 12


@dataclass(slots=True, kw_only=True)
class Job:
    """A claimed scoring job into `checked.out`, with its finished part."""

    checked: CheckedScoring
    survey: Survey
    out: Path
    folder: Path
    manifest: Manifest
    types: Mapping[str, pa.DataType]
    """Types of the added columns in the parts: lists, one value per response."""
    summary: Summary
    """Statistics of all scored rows, durable and pending."""
    responses_done: int = 0
    batches_done: int = 0
    _pending: list[pa.Table] = field(default_factory=list)
    _pending_rows: int = 0
    _pending_bytes: int = 0
    _pending_state: Mapping[str, Any] = field(default_factory=dict)
    _opened: float = float("-inf")

    @property
    def rows_done(self) -> int:
        """How many rows finished parts hold."""
        return self.manifest.rows_done

    @property
    def rows_left(self) -> int:
        return self.survey.rows - self.rows_done

    @property
    def state(self) -> Mapping[str, Any]:
        """The transforms' running statistics after the last part; {} before the first."""
        return self.manifest.parts[-1].state if self.manifest.parts else {}

    def add(
        self,
        batch: Sequence[AnsweredRow],
        rewards: RewardBatch,
        state: Mapping[str, Any],
        *,
        busy_s: Mapping[str, float] | None = None,
    ) -> None:
        """Add a batch. `state`: the scorer's after the batch; `busy_s`: see `Scorer.take_seconds`.
        Raises DataError where a part cannot be written."""
        summary = Summary()
        summary.add(rewards, busy_s=busy_s)
        table = score_table(batch, rewards, further=self.checked.config.columns)
        self.add_table(table, summary, state)

    def add_table(self, table: pa.Table, summary: Summary, state: Mapping[str, Any]) -> None:
        """Add a batch's `score_table` and its rewards' summary; otherwise as `add`."""
        self._pending.append(table)
        self._pending_state = state
        self.summary.merge(summary)
        self.responses_done += summary.rows
        self.batches_done += 1
        self._pending_rows += len(table)
        self._pending_bytes += table.nbytes
        full = self._pending_rows >= PART_ROWS or self._pending_bytes >= PART_BYTES
        if full or time.monotonic() - self._opened >= PART_SECONDS:
            self.close_part()

    def close_part(self) -> None:
        """Write the rows added since the last part, if any. Raises DataError where they cannot be
        written. The call can be repeated."""
        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        try:
            part = self._write(table)
            self.manifest.parts.append(part)
            try:
                self.manifest.save(self.folder)
            except OSError:
                self.manifest.parts.pop()
                raise
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        self._pending = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._opened = time.monotonic()

    def scored(self, first: int, last: int) -> dict[str, list[Any]]:
        """Return the added columns for the rows first .. last - 1; lists where the row has a list.

        Raises DataError where the parts lack rows.
        """
        tables = []
        for part in self.manifest.parts:
            if part.first_row < last and part.last_row >= first:
                table = pq.read_table(self.folder / part.file)
                rows = table[ROW].to_numpy()
                tables.append(table.filter(pa.array((rows >= first) & (rows < last))))
        table = pa.concat_tables(tables).sort_by(ROW)
        if table[ROW].to_pylist() != list(range(first, last)):
            raise self._lacking(first, last)
        several = table[SEVERAL].to_pylist()
        columns: dict[str, list[Any]] = {}
        for name in self.types:
            values = table[name].to_pylist()
            for i, in_list in enumerate(several):
                if not in_list:
                    values[i] = values[i][0]
            columns[name] = values
        return columns

    def rewards(self) -> Rewards:
        """Return all rows' rewards, which are scored; 24 bytes per response. Raises DataError where
        the parts lack rows."""
        parts: list[pa.Table] = [
            pq.read_table(self.folder / part.file, columns=[ROW, "reward"])
            for part in self.manifest.parts
        ]
        table = pa.concat_tables(parts).sort_by(ROW).combine_chunks()
        if not np.array_equal(table[ROW].to_numpy(), np.arange(self.survey.rows)):
            raise self._lacking(0, self.survey.rows)
        lists = table["reward"]
        return Rewards.of_lists(lists.chunk(0))

    def standing(self) -> str:
        """Return a sentence on the finished rows, their place, and how to resume."""
        if not self.rows_done:
            return "no row was scored; nothing was written"
        return (
            f"{self.rows_done} of {self.survey.rows} rows are scored and kept in {self.folder}; the"
            " same command goes on from there"
        )

    def partial(self) -> Path:
        """Return the output's temporary name."""
        return self.folder / _PARTIAL

    def write_lines(self, path: Path, records: Iterable[Mapping[str, Any]]) -> int:
        """Write one JSON object per line to `path`, a file beside the output, which appears
        complete or not at all. Return their number. Raises DataError where it cannot be written."""
        fresh = self.folder / _LINES_PARTIAL
        count = 0
        try:
            # backslashreplace turns a lone surrogate into its JSON escape.
            with fresh.open("w", encoding="utf-8", errors="backslashreplace") as file:
                for record in records:
                    count += 1
                    file.write(json_text(record) + "\n")
            put_in_place(fresh, path)
        except OSError as error:
            raise cannot_write(path, error) from error
        return count

    def write_export(self, path: Path, records: Iterable[Mapping[str, Any]]) -> int:
        """Write as `write_lines` does. The manifest records before that the file is this job's,
        which may replace it when it is resumed."""
        if path.name not in self.manifest.exports:
            self.manifest.exports.append(path.name)
            try:
                self.manifest.save(self.folder)
            except OSError as error:
                raise cannot_write(self.folder, error) from error
        return self.write_lines(path, records)

    def about_to_place(self) -> None:
        """Record in the manifest that the output is complete, so that the job counts as done if the
        process dies before it removes the parts."""
        try:
            status = self.partial().stat()
            self.manifest.written = {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}
            self.manifest.save(self.folder)
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    @property
    def in_place(self) -> bool:
        """Whether the output already has its final name, so that only the parts remain to be
        removed."""
        written = self.manifest.written
        if written is None or not self.out.is_file():
            return False
        status = self.out.stat()
        return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns} == dict(written)

    def _lacking(self, first: int, last: int) -> DataError:
        return DataError(
            f"the parts in {self.folder} do not hold the rows {first} to {last - 1} once each;"
            " remove it and score again"
        )

    def _write(self, table: pa.Table) -> Part:
        name = f"part-{len(self.manifest.parts):05d}.parquet"
        fresh = self.folder / f".{name}.tmp"
        pq.write_table(table, fresh)
        put_in_place(fresh, self.folder / name)
        rows = table[ROW].to_numpy()
        return Part(
            file=name,
            bytes=(self.folder / name).stat().st_size,
            digest=digest_of(self.folder / name),
            memory_bytes=table.nbytes,
            first_row=int(rows.min()),
            last_row=int(rows.max()),
            rows_done=self.rows_done + len(table),
            responses_done=self.responses_done,
            batches_done=self.batches_done,
            state=self._pending_state,
            summary=self.summary.to_json(),
        )


@contextmanager
def claim(checked: CheckedScoring) -> Iterator[Job]:
    """Open the job, new or resumed, and lock it for the block.

    Raises OutputDirError where another process holds the lock, or the folder holds another job's
    rows without overwrite; DataError where `out` exists already or the folder cannot be written.
    """
    assert checked.out is not None
    folder = parts_folder(checked.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock_file = lock(folder / LOCK_FILE)
    except LockedError as error:
        raise OutputDirError(
            f"out={checked.out} is being written by another process ({error}); wait for it or stop"
            " it, or give another out="
        ) from error
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        write_to(log_file(checked.out))
        job = _open(checked, folder)
        yield job
    finally:
        if not (folder / MANIFEST_FILE).exists():
            # A folder that holds something else stays.
            with suppress(OSError):
                if all(map(_is_of_a_job, folder.iterdir())):
                    shutil.rmtree(folder)
        unlock(lock_file)


def discard(job: Job) -> None:
    """Discard the parts, whose rows are in the output; `claim` removes the folder at its end."""
    try:
        (job.folder / MANIFEST_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(job.folder, error) from error


def cannot_write(place: Path, error: OSError) -> DataError:
    """Return the error for a disk that is full, gone or read-only."""
    return DataError(
        f"{place} cannot be written ({type(error).__name__}: {error}); make room or correct the"
        " permissions and run the same command again: it resumes after the last written part"
    )


def _open(checked: CheckedScoring, folder: Path) -> Job:
    assert checked.out is not None
    assert checked.survey is not None
    identity = identity_of(checked)
    manifest = _read_or_clear(checked, folder, identity) or Manifest(identity=identity)
    torn = manifest.keep_whole_parts(folder)
    if torn:
        _log.warning(
            f"{folder / torn} is missing or damaged: all rows after the first"
            f" {manifest.rows_done} in the order of scoring are scored again"
        )
    last = manifest.parts[-1] if manifest.parts else None
    names = [spec.name for spec in checked.specs if not spec.part_of]
    job = Job(
        checked=checked,
        survey=checked.survey,
        out=checked.out,
        folder=folder,
        manifest=manifest,
        types=score_types(names, several=True, further=checked.config.columns),
        summary=Summary() if last is None else Summary.from_json(last.summary),
        responses_done=0 if last is None else last.responses_done,
        batches_done=0 if last is None else last.batches_done,
    )
    if checked.config.data.on_bad_row == "quarantine":
        job.summary.rows_read = job.survey.rows + job.survey.bad_rows
        job.summary.quarantined = job.survey.bad_rows
    if not job.in_place:
        refuse_existing(checked.out, overwrite=checked.config.overwrite)
    if job.rows_done:
        _log.info(
            f"resuming: {job.rows_done} of {job.survey.rows} rows were scored before (started"
            f" {manifest.started})"
        )
    return job


def _read_or_clear(checked: CheckedScoring, folder: Path, identity: Identity) -> Manifest | None:
    """Read the same job's manifest. Without one, or where another job may be discarded, clear the
    folder and return None."""
    overwrite = checked.config.overwrite
    try:
        manifest = read_manifest(folder)
    except OutputDirError as error:
        if not overwrite:
            raise
        _log.warning(f"{error}; discarded: overwrite=true")
        _clear(folder)
        return None
    if manifest is None:
        _refuse_foreign(folder)
        return None
    lines = what_differs(manifest.identity, identity)
    if not lines:
        return manifest
    if manifest.parts and not overwrite:
        if len(lines) > _LISTED:
            lines[_LISTED:] = [f"and {len(lines) - _LISTED} more"]
        listed = "\n    ".join(lines)
        raise OutputDirError(
            f"{folder} holds {manifest.rows_done} scored rows of another job (started"
            f" {manifest.started}):\n    {listed}\n  give another out= than {checked.out}, or"
            " resume that job with its settings, or discard its rows with overwrite=true"
        )
    if manifest.parts:
        _log.warning(
            f"discarded {manifest.rows_done} rows of another job in {folder} (started"
            f" {manifest.started}): overwrite=true"
        )
    _clear(folder)
    return None


def _refuse_foreign(folder: Path) -> None:
    """Raise OutputDirError for a folder with another program's files."""
    foreign = sorted(entry.name for entry in folder.iterdir() if not _is_of_a_job(entry))
    if foreign:
        raise OutputDirError(
            f"{folder} is the folder for parts of the output, and it holds"
            f" {', '.join(foreign[:5])}; give another out="
        )


def _is_of_a_job(entry: Path) -> bool:
    return entry.name in (
        MANIFEST_FILE,
        LOCK_FILE,
        _PARTIAL,
        _LINES_PARTIAL,
    ) or entry.name.startswith((".part-", "part-", f".{MANIFEST_FILE}"))


def _clear(folder: Path) -> None:
    """Remove a job's files, the manifest first: parts without it belong to no job."""
    (folder / MANIFEST_FILE).unlink(missing_ok=True)
    for entry in folder.iterdir():
        if _is_of_a_job(entry) and entry.name != LOCK_FILE:
            entry.unlink()
