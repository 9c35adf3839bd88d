"""Assembly of the output from parts of scores and the rows of the files, in the rows' order,
with a window of them in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

import pyarrow as pa

from rmrl.data.column_names import NAMES_COLUMN, column_names
from rmrl.data.rows import read_rows, row_texts
from rmrl.data.source_table import SourceTables
from rmrl.data.table_writer import TableWriter, score_types
from rmrl.data.traces.stored_trace import STATUS
from rmrl.offline.job import Job

_WINDOW_BYTES = 64 * 2**20
_LINES = (".jsonl", ".ndjson", ".jsonl.gz")
_ROWS_AT_A_TIME = 256
"""Fixed, so that the row groups of a parquet file do not depend on the sizes of the parts."""


def assemble(job: Job) -> None:
    """Write `job.out` from the parts. Raises DataError where it cannot be written or a part lacks
    rows."""
    sources = None
    if job.survey.schema is not None:
        sources = SourceTables(job.checked.files, job.survey.schema, masks=job.survey.masks)
    names = [spec.name for spec in job.checked.specs if not spec.part_of]
    types = score_types(names, several=job.survey.several, further=job.checked.config.columns)
    names_column = names_of_columns(job)
    types |= dict.fromkeys(names_column, pa.string())
    writer = TableWriter(
        job.out,
        partial=job.partial(),
        types=types,
        sources=sources,
        columns=job.survey.columns,
        escape_formulas=job.checked.config.escape_formulas,
    )
    try:
        # A line without a column that is added, and that is no trace, need not be parsed again.
        replaced = {STATUS, *types}.intersection(job.survey.columns)
        as_text = job.out.suffix == ".jsonl" and not replaced
        rows = _source_rows(job, as_text=as_text)
        for added in added_columns(job):
            count = len(added["reward"])
            further = dict(added)
            for name, text in names_column.items():
                further[name] = [text] * count
            writer.write(list(islice(rows, count)), further)
        writer.close()
        job.about_to_place()
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


def names_of_columns(job: Job) -> dict[str, str]:
    """Return {column: names} for the output, from which `rmrl show` and `rmrl report` learn where
    prompt and response stand; {} where they have their usual names."""
    text = column_names(job.checked.config.data).as_text()
    # Those of the input count for this job no longer.
    if text == "{}" and NAMES_COLUMN not in job.survey.columns:
        return {}
    return {NAMES_COLUMN: text}


def _source_rows(job: Job, *, as_text: bool) -> Iterator[Any]:
    """Yield the files' rows; empty ones for parquet, whose writer reads the files itself.
    `as_text`: lines stay lines."""
    if job.survey.schema is not None:
        yield from repeat({}, job.survey.rows)
        return
    survey = job.survey
    for position, path in enumerate(job.checked.files):
        count = survey.rows_of_files[position]
        if count and as_text and path.name.endswith(_LINES):
            yield from islice(row_texts(path, survey.masks[position]), count)
        elif count:
            for row in islice(read_rows(path, wanted_N=survey.masks[position]), count):
                yield row.fields


def added_columns(job: Job) -> Iterator[Mapping[str, Sequence[Any]]]:
    """Yield the added columns of the next rows, `_ROWS_AT_A_TIME` at a time."""
    total = job.survey.rows
    bytes_per_row = sum(part.memory_bytes for part in job.manifest.parts) / total
    window = min(int(_WINDOW_BYTES / max(bytes_per_row, 1.0)), 2**16)
    window = _ROWS_AT_A_TIME * max(1, window // _ROWS_AT_A_TIME)
    for first in range(0, total, window):
        columns = job.scored(first, min(first + window, total))
        for start in range(0, len(columns["reward"]), _ROWS_AT_A_TIME):
            rows = slice(start, start + _ROWS_AT_A_TIME)
            yield {name: values[rows] for name, values in columns.items()}
