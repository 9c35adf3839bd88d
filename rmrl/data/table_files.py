"""Row files that hold columns with types: parquet, and Arrow's own format, in which the package
datasets saves (`save_to_disk`) and caches."""

# pyright: basic
# pyarrow ships no types.

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmrl.errors import DataError
from rmrl.files import TABLE_SUFFIXES

_ARROW_FILE = b"ARROW1"
"""First bytes of Arrow's format for random access. Its format for streams has none, and is what
`save_to_disk` writes."""
_STATE, _SPLITS = "state.json", "dataset_dict.json"


def holds_table(path: Path) -> bool:
    """Return whether the file stores its columns' types."""
    return path.suffix in TABLE_SUFFIXES


def table_batches(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in order, at most `rows` at once. Raises what pyarrow raises, OSError."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=rows)
        return
    with _arrow(path) as (_, batches):
        for batch in batches:
            for start in range(0, len(batch), rows):
                yield batch.slice(start, rows)


def table_schema(path: Path) -> pa.Schema:
    """Return the schema that the file stores. Raises as `table_batches`."""
    if path.suffix == ".parquet":
        return pq.read_schema(path)
    with _arrow(path) as (schema, _):
        return schema


def table_length(path: Path) -> int:
    """Return how many rows the file has. Raises as `table_batches`."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as parquet:
            return int(parquet.metadata.num_rows)
    with _arrow(path) as (_, batches):
        return sum(map(len, batches))


def saved_files(folder: Path, key: str) -> list[Path]:
    """Return the files of a data set that `save_to_disk` wrote, in their order, [] for another
    folder. `key` (data.files) appears in errors. Raises DataError where the folder holds several
    splits, or lists no files."""
    if (folder / _SPLITS).is_file():
        names = sorted(path.parent.name for path in folder.glob(f"*/{_STATE}"))
        raise DataError(
            f"{key}: {folder} holds the splits {', '.join(names)}; need one of them:"
            f" {key}={folder / (names or ['train'])[0]}"
        )
    if not (folder / _STATE).is_file():
        return []
    try:
        state = json.loads((folder / _STATE).read_bytes())
        return [folder / str(entry["filename"]) for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{key}: {folder / _STATE} lists no files ({type(error).__name__}: {error}); need a"
            " folder that save_to_disk of the package datasets wrote; save it again"
        ) from error


@contextmanager
def _arrow(path: Path) -> Iterator[tuple[pa.Schema, Iterator[Any]]]:
    """Open an Arrow file. Gives its schema and its record batches."""
    with path.open("rb") as file:
        is_file = file.read(len(_ARROW_FILE)) == _ARROW_FILE
    with pa.memory_map(str(path)) as source:
        if not is_file:
            with pa.ipc.open_stream(source) as stream:
                yield stream.schema, iter(stream)
            return
        with pa.ipc.open_file(source) as reader:
            yield reader.schema, map(reader.get_batch, range(reader.num_record_batches))
