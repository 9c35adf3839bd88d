"""Raw records by split, from a local file, a folder with a file per split, or a data set on a
hub."""

# pyright: basic
# The package datasets is only partly typed.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.data.rows import JSONL_SUFFIXES, read_rows
from rmrl.errors import DataError

SPLITS = ("train", "test")
Record = tuple[str, Mapping[str, Any]]
"""(place for messages, such as "train.jsonl row 3 (line 4)", raw fields)."""

_SUFFIXES = (".parquet", *JSONL_SUFFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubNames:
    """What a data set on a hub calls its parts."""

    configs: tuple[str | None, ...] = (None,)
    """Its configurations, read one after the other; None: the only one."""
    splits: Mapping[str, str] | None = None
    """Our split -> its name there; None: the same names."""


def records_by_split(source: str, *, hub: HubNames | None = None) -> dict[str, Iterator[Record]]:
    """Split -> its records, each readable once; a split that the source has not is left out.

    `source`: a file, a folder, or a hub id. Raises DataError where there is nothing of that name,
    naming what was looked for.
    """
    path = Path(source).expanduser()
    if path.exists():
        return {split: local_records(file) for split, file in local_files(path).items()}
    if path.suffix in _SUFFIXES or path.is_absolute() or source.startswith((".", "~")):
        raise DataError(
            f"--source {source} does not exist; need a hub id (owner/name), a jsonl or parquet"
            " file, or a folder of them"
        )
    return _hub_records(source, hub or HubNames())


def local_files(source: Path) -> dict[str, Path]:
    """Split -> file. A single file is the test split where its name says so, else the training
    split."""
    if source.is_file():
        return {"test" if "test" in source.name else "train": source}
    found = {
        split: sorted(p for p in source.glob(f"*{split}*") if p.suffix in _SUFFIXES)
        for split in SPLITS
    }
    if not any(found.values()) or any(len(files) > 1 for files in found.values()):
        inside = ", ".join(sorted(p.name for p in source.iterdir())[:10]) or "nothing"
        raise DataError(
            f"{source} holds {inside}; need one file named *train* and one named *test* (jsonl or"
            " parquet), or one of the two; name one file instead"
        )
    return {split: files[0] for split, files in found.items() if files}


def local_records(path: Path) -> Iterator[Record]:
    """Of one file, in a stream; raises as `rmrl.data.rows.read_rows` does."""
    return ((f"{row.file} {row.where}", row.fields) for row in read_rows(path))


def _hub_records(source: str, names: HubNames) -> dict[str, Iterator[Record]]:
    parts = [_load(source, config) for config in names.configs]
    there = {split: (names.splits or {}).get(split, split) for split in SPLITS}
    found = {split: [part[name] for part in parts if name in part] for split, name in there.items()}
    if not any(found.values()):
        have = ", ".join(dict.fromkeys(name for part in parts for name in part))
        raise DataError(
            f"--source {source}: it has the splits {have}; need {' or '.join(there.values())}; name"
            " them with an option"
        )
    return {
        split: _numbered(f"{source} {there[split]}", tables)
        for split, tables in found.items()
        if tables
    }


def _numbered(label: str, tables: list[Any]) -> Iterator[Record]:
    number = 0
    for table in tables:
        for fields in table:
            yield f"{label} row {number}", fields
            number += 1


def _load(source: str, config: str | None) -> Mapping[Any, Any]:
    from datasets import load_dataset  # slow to import, and not needed for local files
    from httpx import HTTPError

    try:
        return load_dataset(source, config)
    except (OSError, ValueError, RuntimeError, HTTPError) as error:
        words = (str(error).splitlines() or [""])[0]
        raise DataError(
            f"--source {source}: not a local file or folder, and the hub gave"
            f" {type(error).__name__}: {words}; check the spelling and the connection, or give a"
            " local jsonl or parquet file"
        ) from error
