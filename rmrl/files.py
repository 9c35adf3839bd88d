"""Files that appear complete or not at all and survive a power cut, and a lock that one process at
a time can hold."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

JSONL_SUFFIXES = (".jsonl", ".ndjson", ".json")
GZIP_SUFFIX = ".gz"
CSV_SUFFIX = ".csv"
CSV_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TABLE_SUFFIXES = (".parquet", ".arrow")
"""File names' ends where columns are stored with their types."""
TYPED_SUFFIXES = (
    ".parquet", *JSONL_SUFFIXES, *(end + GZIP_SUFFIX for end in JSONL_SUFFIXES), ".arrow"
)  # fmt: skip
"""File names' ends where values have types."""
DATA_SUFFIXES = (*TYPED_SUFFIXES, *CSV_SUFFIXES)
"""File names' ends where rows are read."""
_READ_BYTES = 2**20


def is_csv(path: Path) -> bool:
    """Return whether a file's values are the cells of a table of texts."""
    return path.name.endswith(CSV_SUFFIXES)


def is_there(path: str | Path) -> bool:
    """Return whether a path exists; False for a text that is no name that a file can have."""
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def open_text(path: Path, newline: str | None = None) -> TextIO:
    """Open a text file for reading, packed or not. A byte that is not UTF-8 becomes a lone
    surrogate. `newline`: as in `open`."""
    options: dict[str, str | None] = {
        "encoding": "utf-8-sig",
        "errors": "surrogateescape",
        "newline": newline,
    }
    if path.suffix == GZIP_SUFFIX:
        return gzip.open(path, "rt", **options)  # type: ignore[call-overload]
    return path.open(**options)  # type: ignore[call-overload]


class LockedError(Exception):
    """Another process holds the lock. The message names it."""


def write_whole(path: Path, text: str) -> None:
    """Write `text` under a temporary name, flush it to the disk and rename: the file holds the
    whole text or its old content."""
    fresh = path.with_name(f".{path.name}.tmp")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def put_in_place(fresh: Path, path: Path) -> None:
    """Flush `fresh`, a closed file on the same disk, and rename it to `path`."""
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no fsync of folders; the rename itself has happened.
        logging.getLogger(__name__).debug("%s cannot be flushed: %s", folder, error)
    finally:
        os.close(descriptor)


def digest_of(path: Path) -> str:
    """Return the file's BLAKE2b digest, 32 hexadecimal digits; about a second per gigabyte."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def lock(path: Path) -> TextIO:
    """Open and lock `path` for this process until `unlock`, or until the process ends.

    Raises LockedError where another process holds it, OSError where the file cannot be opened. On a
    file system without locks a warning is logged.
    """
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "an unknown process"
            file.close()
            raise LockedError(holder) from error
        except OSError as error:
            logging.getLogger(__name__).warning(
                "%s cannot be locked (%s): make sure that no other run writes there.", path, error
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        # The holder removed the file in the meantime, so others would open and lock another one.
        file.close()
    file.truncate(0)
    file.write(
        f"process {os.getpid()} on {socket.gethostname()} since"
        f" {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
    )
    file.flush()
    return file


def unlock(file: TextIO) -> None:
    """Release the lock. Safe to call twice."""
    if not file.closed:
        # Unlocked by name, since a forked child may still hold the same open file.
        fcntl.flock(file, fcntl.LOCK_UN)
        file.close()
