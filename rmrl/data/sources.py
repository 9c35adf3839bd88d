"""Raw records by split, from a local file, a folder with a file per split, or a data set on a
hub."""

# pyright: basic
# The package datasets is only partly typed.

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.data.rows import read_rows
from rmrl.errors import DataError, first_line
from rmrl.files import TYPED_SUFFIXES

SPLITS = ("train", "test")
Record = tuple[str, Mapping[str, Any]]
"""(location for messages, such as "train.jsonl row 3 (line 4)", raw fields)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubNames:
    """Which configurations and splits a data set has on a hub."""

    configs: tuple[str | None, ...] = (None,)
    """Configurations, read one after the other. None: the only one."""
    splits: Mapping[str, str] | None = None
    """Split -> its name on the hub. None: the same names."""


def records_by_split(source: str, *, hub: HubNames | None = None) -> dict[str, Iterator[Record]]:
    """Return split -> its records, each readable once, without splits that the source lacks.

    `source`: a file, a folder, or a hub id. Raises DataError where the source does not exist.
    """
    path = Path(source).expanduser()
    if path.exists():
        return {split: local_records(file) for split, file in local_files(path).items()}
    if source.endswith(TYPED_SUFFIXES) or path.is_absolute() or source.startswith((".", "~")):
        raise DataError(
            f"--source {source} does not exist; need a hub id (owner/name), a jsonl or parquet"
            " file, or a folder of them"
        )
    return _hub_records(source, hub or HubNames())


def local_files(source: Path) -> dict[str, Path]:
    """Return split -> file. A single file is the test split if its name contains "test", else the
    training split."""
    if source.is_file():
        return {"test" if "test" in source.name else "train": source}
    files: dict[str, Path] = {}
    is_ambiguous = False
    for path in sorted(source.iterdir()):
        for split in SPLITS:
            if split in path.name and path.name.endswith(TYPED_SUFFIXES):
                is_ambiguous = is_ambiguous or split in files
                files[split] = path
    if is_ambiguous or not files:
        names = sorted(path.name for path in source.iterdir())
        raise DataError(
            f"{source} holds {', '.join(names[:10]) or 'nothing'}; need one file named *train* and"
            " one named *test* (jsonl or parquet), or one of the two; name one file instead"
        )
    return {split: files[split] for split in SPLITS if split in files}


def local_records(path: Path) -> Iterator[Record]:
    """Stream one file's records. Raises what `rmrl.data.rows.read_rows` raises."""
    for row in read_rows(path):
        yield f"{row.file} {row.where}", row.fields


def _hub_records(source: str, names: HubNames) -> dict[str, Iterator[Record]]:
    parts = [_load(source, config) for config in names.configs]
    hub_splits = {**dict(zip(SPLITS, SPLITS, strict=True)), **(names.splits or {})}
    records: dict[str, Iterator[Record]] = {}
    for split in SPLITS:
        name = hub_splits[split]
        tables = [part[name] for part in parts if name in part]
        if tables:
            records[split] = _numbered(f"{source} {name}", tables)
    if not records:
        present = ", ".join(dict.fromkeys(itertools.chain.from_iterable(parts)))
        needed = " or ".join(hub_splits[split] for split in SPLITS)
        raise DataError(
            f"--source {source}: it has the splits {present}; need {needed}; name them with an"
            " option"
        )
    return records


def _numbered(label: str, tables: list[Any]) -> Iterator[Record]:
    for number, fields in enumerate(itertools.chain.from_iterable(tables)):
        yield f"{label} row {number}", fields


def _load(source: str, config: str | None) -> Mapping[Any, Any]:
    from datasets import load_dataset  # slow to import, and not needed for local files
    from httpx import HTTPError

    try:
        return load_dataset(source, config)
    except (OSError, ValueError, RuntimeError, HTTPError) as error:
        raise DataError(
            f"--source {source}: not a local file or folder, and the hub answered"
            f" {type(error).__name__}: {first_line(error)}; check the spelling and the connection,"
            " or give a local jsonl or parquet file"
        ) from error
