"""A scoring job's state on disk: a folder beside the output with parts and their manifest.

    <out>.parts/manifest.json        identity of the job, and each part with the state after it;
                                     rewritten after every part
    <out>.parts/part-00000.parquet   the added columns of some rows, a value per response; `row`:
                                     position among the rows of all files
    <out>.parts/.lock                locked while a process writes here

Every file is flushed to the disk and renamed into place, so finished parts survive when a process
or a machine dies.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from rmrl.errors import OutputDirError
from rmrl.files import digest_of, write_whole

MANIFEST_FILE = "manifest.json"
LOCK_FILE = ".lock"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One finished score file, with the state behind it; counts include all parts before it."""

    file: str
    bytes: int
    digest: str
    memory_bytes: int
    """Size of this part's table in memory."""
    first_row: int
    """Smallest row number in the part."""
    last_row: int
    rows_done: int
    responses_done: int
    batches_done: int
    state: Mapping[str, Any]
    """Running statistics of the transforms, see `Scorer.state_dict`."""
    summary: Mapping[str, Any]
    """See `Summary.to_json`."""


@dataclass(slots=True, kw_only=True)
class Manifest:
    """One job's parts in their scoring's order."""

    identity: Mapping[str, Any]
    started: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M:%S %z"))
    parts: list[Part] = field(default_factory=list)
    written: Mapping[str, int] | None = None
    """Size and time stamp of the complete output just before it was renamed. None: not assembled
    yet."""
    exports: list[str] = field(default_factory=list)
    """Names of the files of `select` and `export` that the job writes or has written."""

    @property
    def rows_done(self) -> int:
        return self.parts[-1].rows_done if self.parts else 0

    def save(self, folder: Path) -> None:
        """Write the manifest into `folder`. Raises OSError."""
        content = {"version": _VERSION, **dataclasses.asdict(self)}
        write_whole(
            folder / MANIFEST_FILE, json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        )

    def keep_whole_parts(self, folder: Path) -> str:
        """Drop the first part that is missing or damaged, and all parts behind it. Return its name,
        "" where all parts are intact."""
        for position, part in enumerate(self.parts):
            file = folder / part.file
            whole = False
            with suppress(OSError):
                whole = file.stat().st_size == part.bytes and digest_of(file) == part.digest
            if not whole:
                del self.parts[position:]
                self.written = None
                return part.file
        return ""


def output_file(out: str, shard: tuple[int, int] | None) -> Path:
    """Return the file that a job with `out` writes; shard (i, n) has its own file."""
    path = Path(out).expanduser()
    if shard is None:
        return path
    number, count = shard
    return path.with_name(f"{path.stem}-{number:0{len(str(count))}}-of-{count}{path.suffix}")


def export_file(out: Path, kind: str) -> Path:
    """Return the file beside `out` for select=`kind` or export=`kind`."""
    return out.with_name(f"{out.stem}.{kind}.jsonl")


def quarantine_file(out: Path) -> Path:
    """Return the file with a job's rows that cannot be read."""
    return out.with_name(out.name + ".quarantine.jsonl")


def parts_folder(out: Path) -> Path:
    """Return the folder for `out`'s parts."""
    return out.with_name(out.name + ".parts")


def log_file(out: Path) -> Path:
    """Return the log file for commands that write `out`."""
    return out.with_name(out.name + ".log")


def summary_file(out: Path) -> Path:
    """Return the file with `out`'s statistics and the time that its rewards took."""
    return out.with_name(out.name + ".summary.json")


def scored_names(out: Path) -> frozenset[str]:
    """Return the rewards that the job behind `out` scored, none where its statistics are gone."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return frozenset(json.loads(summary_file(out).read_bytes())["components"])
    return frozenset()


def exports_of(folder: Path) -> list[str]:
    """Return which export files the job in `folder` writes, [] where there is no readable
    manifest."""
    try:
        manifest = read_manifest(folder)
    except OutputDirError:
        return []
    return [] if manifest is None else manifest.exports


def read_manifest(folder: Path) -> Manifest | None:
    """Read `folder`'s manifest, None without one. Raises OutputDirError where it cannot be read."""
    file = folder / MANIFEST_FILE
    try:
        content = json.loads(file.read_bytes())
        if content.pop("version") != _VERSION:
            raise ValueError("it was written by another version of rmrl")
        parts = [Part(**part) for part in content.pop("parts")]
        manifest = Manifest(**content, parts=parts)
        itemgetter("rmrl", "config", "rewards", "files")(manifest.identity)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OutputDirError(
            f"{file} cannot be read ({type(error).__name__}: {error}), so which rows are scored"
            " already is unknown; discard them with overwrite=true, or give another out="
        ) from error
    return manifest
