"""Verdicts kept over steps and runs. A cache only saves work: scoring goes on without it, whatever
happens to its file later."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmrl.rewards.cache.codec import Result, decode, encode
from rmrl.rewards.cache.file import (
    delete,
    error_code,
    least_recently_used,
    open_file,
    used_bytes,
    writing,
)

_KEYS_AT_ONCE = 500
_KEEP_SHARE = 0.9
"""Pruning goes this far below the limit, so that the next verdict does not cause another one."""

_log = logging.getLogger(__name__)


class CacheStore:
    """One SQLite file. Safe to call from several threads. Several processes on one machine may
    share the file.

    `max_bytes`: least recently used verdicts go when the file holds more. A warning is
    logged, once, when the file can no longer be used (disk full, damaged): from then on it holds
    and stores nothing. The constructor raises ConfigError (see `open_file`).
    """

    def __init__(self, path: str | Path, *, max_bytes: int) -> None:
        assert max_bytes > 0, f"max_bytes {max_bytes}"
        self.path = Path(path).expanduser()
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = open_file(self.path, create=True)
        self._busy_noticed = False

    @property
    def in_use(self) -> bool:
        """False once closed, also after an error."""
        return self._connection is not None

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, Result]:
        """Return the stored results, marked `cached`. Each counts as a hit."""
        results: dict[bytes, Result] = {}
        with self._guarded() as connection:
            if connection is not None:
                hits: list[tuple[float, int]] = []
                now = time.time()
                for verdict, key, value in list(_rows(connection, keys)):
                    result = decode(value)
                    if result is not None:
                        results[key] = result
                        hits.append((now, verdict))
                if hits:
                    with writing(connection):
                        connection.executemany(
                            "UPDATE uses SET hits = hits + 1, last_used = ? WHERE id = ?", hits
                        )
        return results

    def put_many(self, results: Mapping[bytes, Any], *, scorer: str, reward: str) -> int:
        """Store the results that `encode` accepts and return how many are new.

        `scorer`: the `scorer_key`; `reward`: its name.
        """
        encoded: dict[bytes, bytes] = {}
        for key, result in results.items():
            value = encode(result)
            if value is not None:
                encoded[key] = value
        stored = 0
        with self._guarded() as connection:
            if connection is not None and encoded:
                with writing(connection):
                    inserted = _insert(connection, encoded, scorer=scorer, reward=reward)
                # Only now is it committed.
                stored = inserted
                excess = used_bytes(connection) - self._max_bytes
                if excess > 0:
                    excess += round((1 - _KEEP_SHARE) * self._max_bytes)
                    delete(connection, least_recently_used(connection, excess))
        return stored

    def close(self) -> None:
        """Close the file. A second call has no effect."""
        with self._lock:
            self._give_up()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection | None]:
        """The connection, for one thread at a time.

        SQLite's errors end here: as a warning and, where they would come again, with the end of the
        cache.
        """
        with self._lock:
            try:
                yield self._connection
            except sqlite3.Error as error:
                code = error_code(error)
                if code != sqlite3.SQLITE_BUSY:
                    why = "its disk is full" if code == sqlite3.SQLITE_FULL else str(error)
                    _log.warning(
                        f"the cache {self.path} can no longer be used ({why}); scoring goes on"
                        " without it."
                    )
                    self._give_up()
                elif not self._busy_noticed:
                    _log.warning(
                        f"the cache {self.path} is held by another process; verdicts that had to"
                        " wait too long for it are not kept."
                    )
                    self._busy_noticed = True

    def _give_up(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            # A full disk may raise once more; it has been reported.
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _rows(
    connection: sqlite3.Connection, keys: Sequence[bytes]
) -> Iterator[tuple[int, bytes, bytes]]:
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        some = keys[start : start + _KEYS_AT_ONCE]
        marks = ",".join("?" * len(some))
        yield from connection.execute(
            f"SELECT id, key, value FROM verdicts WHERE key IN ({marks})", some
        )


def _insert(
    connection: sqlite3.Connection, encoded: Mapping[bytes, bytes], *, scorer: str, reward: str
) -> int:
    """Insert new verdicts and return their number. A verdict that another process stored in the
    meantime stays: the first answer is the one that is repeated."""
    connection.execute(
        "INSERT OR IGNORE INTO scorers (scorer, reward) VALUES (?, ?)", (scorer, reward)
    )
    query = "SELECT id FROM scorers WHERE scorer = ? AND reward = ?"
    scorer_id = connection.execute(query, (scorer, reward)).fetchone()[0]
    now = time.time()
    stored = 0
    for key, value in encoded.items():
        added = connection.execute(
            "INSERT OR IGNORE INTO verdicts (key, value) VALUES (?, ?)", (key, value)
        )
        if added.rowcount == 1:
            use = (added.lastrowid, scorer_id, now, now, len(key) + len(value))
            connection.execute(
                "INSERT INTO uses (id, scorer_id, created, last_used, hits, bytes) VALUES (?, ?, ?,"
                " ?, 0, ?)",
                use,
            )
            stored += 1
    return stored
