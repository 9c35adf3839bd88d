"""The SQLite file behind the cache: opened, recognised, kept small.

    scorers(id, scorer, reward)                          scorer: a `scorer_key`, hex; reward: its
                                                         name at the verdict's first use
    verdicts(id, key, value)                             key: 32 bytes; value: see codec
    uses(id, scorer_id, created, last_used, hits, bytes) one row per verdict; seconds since 1970

`uses` is its own table so that a hit, a count and a search for the oldest read forty bytes a
verdict and not its text. Several processes on one machine may share a file (write-ahead log); over
network file systems SQLite's locks do not hold.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Generator, Sequence
from pathlib import Path

from rmrl.errors import ConfigError

APPLICATION_ID = 0x726D726C
"""The letters rmrl, in the part of the file's head that SQLite reserves for this."""
SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 30.0
"""Seconds that a write waits for another process's."""
_MAGIC = b"SQLite format 3\x00"
_DELETE_AT_ONCE = 500
_EMPTY_BYTES = 8 * 4096
"""Size of a file without verdicts."""

_SCHEMA = (
    (
        "CREATE TABLE scorers (id INTEGER PRIMARY KEY, scorer TEXT NOT NULL, reward TEXT NOT NULL,"
        " UNIQUE (scorer, reward))"
    ),
    "CREATE TABLE verdicts (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, value BLOB NOT NULL)",
    (
        "CREATE TABLE uses (id INTEGER PRIMARY KEY, scorer_id INTEGER NOT NULL, created REAL NOT"
        " NULL, last_used REAL NOT NULL, hits INTEGER NOT NULL, bytes INTEGER NOT NULL)"
    ),
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def open_file(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open a connection in autocommit mode that any thread may use, one at a time.

    Raises ConfigError, and changes nothing, when the file is missing (`create` False), foreign,
    damaged or cannot be written.
    """
    _check_head(path, create=create)
    try:
        if create and not path.exists():
            _create(path)
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(_not_opened(path, error)) from error
    try:
        # A file that cannot be written fails now and not in the first step.
        with writing(connection):
            for table in ("scorers", "verdicts", "uses"):
                connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchall()
        # A crash may lose the last verdicts, never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        connection.close()
        raise ConfigError(_not_opened(path, error)) from error
    return connection


@contextlib.contextmanager
def writing(connection: sqlite3.Connection) -> Generator[None]:
    """Run the block as one transaction, undone when it raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # On a full disk SQLite itself may have undone it.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return how many bytes in the file are in use. The file itself may be larger for a moment."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    return (pages - free) * page_bytes


def least_recently_used(
    connection: sqlite3.Connection, excess_bytes: int, *, reward: str | None = None
) -> list[int]:
    """Return the ids of the verdicts (of `reward`, or of all) to delete, oldest use first, to make
    the file `excess_bytes` smaller."""
    if excess_bytes <= 0:
        return []
    total = connection.execute("SELECT coalesce(sum(bytes), 0) FROM uses").fetchone()[0]
    # File bytes per stored byte: SQLite adds its own.
    per_byte = max(used_bytes(connection) - _EMPTY_BYTES, 1) / max(total, 1)
    verdicts: list[int] = []
    freed = 0.0
    query = f"SELECT id, bytes FROM uses {_of_reward(reward)} ORDER BY last_used, id"
    for verdict, size in connection.execute(query, () if reward is None else (reward,)):
        if freed >= excess_bytes:
            break
        verdicts.append(verdict)
        freed += size * per_byte
    return verdicts


def unused_since(
    connection: sqlite3.Connection, moment: float | None, *, reward: str | None = None
) -> list[int]:
    """Return the ids of the verdicts last used before `moment` (None: all)."""
    before = float("inf") if moment is None else moment
    condition = _of_reward(reward).replace("WHERE", "AND", 1)
    rows = connection.execute(
        f"SELECT id FROM uses WHERE last_used < ? {condition}",
        (before,) if reward is None else (before, reward),
    )
    return [row[0] for row in rows]


def delete(connection: sqlite3.Connection, verdicts: Sequence[int]) -> None:
    """Remove verdicts by id and give their pages back to the file system."""
    with writing(connection):
        for start in range(0, len(verdicts), _DELETE_AT_ONCE):
            some = verdicts[start : start + _DELETE_AT_ONCE]
            marks = ",".join("?" * len(some))
            connection.execute(f"DELETE FROM verdicts WHERE id IN ({marks})", some)
            connection.execute(f"DELETE FROM uses WHERE id IN ({marks})", some)
        connection.execute("DELETE FROM scorers WHERE id NOT IN (SELECT scorer_id FROM uses)")
    # One page a step: `execute` would stop after the first.
    connection.executescript("PRAGMA incremental_vacuum")


def _of_reward(reward: str | None) -> str:
    return "" if reward is None else "WHERE scorer_id IN (SELECT id FROM scorers WHERE reward = ?)"


def _check_head(path: Path, *, create: bool) -> None:
    """Check the file's first bytes, before SQLite may touch it."""
    if path.is_dir():
        raise ConfigError(
            f"the cache '{path}' is a folder; name a file, such as {path / 'verdicts.sqlite'}"
        )
    if not path.exists():
        if not create:
            raise ConfigError(f"there is no cache '{path}'; name the file of reward.cache.path")
        return
    try:
        with path.open("rb") as stream:
            head = stream.read(100)
    except OSError as error:
        raise ConfigError(_not_opened(path, error)) from error
    if not head.startswith(_MAGIC) or len(head) < 100:
        raise ConfigError(
            f"'{path}' is not a cache of verdicts but some other file, and was left as it is; name"
            " another file"
        )
    if int.from_bytes(head[68:72], "big") != APPLICATION_ID:
        raise ConfigError(
            f"'{path}' is an SQLite database of another program, and was left as it is; name"
            " another file"
        )
    version = int.from_bytes(head[60:64], "big")
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"the cache '{path}' has format {version} and this version of rmrl reads"
            f" {SCHEMA_VERSION}; name another file, or delete it"
        )


def _create(path: Path) -> None:
    """Create the file under another name and rename it when it is complete: processes that start
    together all read a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as connection:
            # Has no effect after the first table.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        # Where another process was first, its file is as good.
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        name.unlink(missing_ok=True)


def error_code(error: Exception) -> int:
    """Return SQLite's primary result code, 0 for an error from outside SQLite's core."""
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _not_opened(path: Path, error: Exception) -> str:
    if error_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"the cache '{path}' is damaged ({error}) and was left as it is; delete it, or name"
            " another file: it only saves work"
        )
    if error_code(error) == sqlite3.SQLITE_BUSY:
        return (
            f"the cache '{path}' is held by another process for more than {BUSY_TIMEOUT_S:g} s;"
            " wait for it, or name another file"
        )
    return (
        f"the cache '{path}' cannot be opened for writing ({error}); name a file in a folder that"
        " can be written"
    )
