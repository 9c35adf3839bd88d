"""A cache file's content, and its pruning: the queries behind `rmrl cache`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.errors import ConfigError, DataError
from rmrl.registry import did_you_mean
from rmrl.rewards.cache.codec import read_json
from rmrl.rewards.cache.file import delete, least_recently_used, open_file, unused_since, used_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One reward's verdicts. Moments are seconds since 1970."""

    reward: str
    scorers: int
    """Different models, settings or drop-in codes the verdicts come from."""
    verdicts: int
    size_bytes: int
    hits: int
    created: float
    """Moment of the first verdict."""
    last_used: float
    """Moment of the last use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One verdict; `text` is the engine's answer as JSON."""

    reward: str
    key: str
    """Hexadecimal."""
    created: float
    last_used: float
    hits: int
    size_bytes: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRule:
    """Rule for dropping verdicts: those unused since `unused_since`, then the least recently used
    while the file holds more than `max_bytes`.

    `reward`: only this one's; with neither of the other two, all of it.
    """

    unused_since: float | None = None
    max_bytes: int | None = None
    reward: str | None = None


class Inventory:
    """An opened cache file. Use `opened`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    @property
    def used_bytes(self) -> int:
        """How many bytes in the file are in use."""
        return used_bytes(self._connection)

    @property
    def file_bytes(self) -> int:
        """The size that the file and its write-ahead log have."""
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def holdings(self) -> list[Holding]:
        """Return one `Holding` per reward, by name."""
        query = (
            "SELECT reward, count(DISTINCT scorer), count(*), sum(bytes), sum(hits), min(created),"
            " max(last_used) FROM uses JOIN scorers ON scorers.id = scorer_id GROUP BY reward ORDER"
            " BY reward"
        )
        names = ("reward", "scorers", "verdicts", "size_bytes", "hits", "created", "last_used")
        holdings: list[Holding] = [
            Holding(**dict(zip(names, row, strict=True))) for row in self._connection.execute(query)
        ]
        return holdings

    def newest(self, limit: int, *, reward: str | None = None) -> list[Kept]:
        """Return the verdicts last used, the newest first. Raises ConfigError for a reward that has
        none."""
        self._check_reward(reward)
        condition = ""
        values: tuple[Any, ...] = (limit,)
        if reward is not None:
            condition = "WHERE reward = ?"
            values = (reward, limit)
        query = (
            "SELECT reward, key, created, last_used, hits, bytes, value FROM uses JOIN scorers ON"
            " scorers.id = scorer_id JOIN verdicts ON verdicts.id = uses.id"
            f" {condition} ORDER BY last_used DESC, uses.id LIMIT ?"
        )
        verdicts: list[Kept] = []
        for name, key, created, last_used, hits, size, value in self._connection.execute(
            query, values
        ):
            try:
                text = json.dumps(read_json(value), ensure_ascii=False)
            except (ValueError, zlib.error) as error:
                text = f"unreadable: {error}"
            verdicts.append(
                Kept(
                    reward=name,
                    key=key.hex(),
                    created=created,
                    last_used=last_used,
                    hits=hits,
                    size_bytes=size,
                    text=text,
                )
            )
        return verdicts

    def condemned(self, rule: PruneRule) -> list[int]:
        """Return the verdict ids that the rule drops. Raises ConfigError for a reward that has
        none."""
        self._check_reward(rule.reward)
        aged: list[int] = []
        if rule.unused_since is not None or rule.max_bytes is None:
            aged = unused_since(self._connection, rule.unused_since, reward=rule.reward)
        if rule.max_bytes is None:
            return aged
        crowded = least_recently_used(
            self._connection, self.used_bytes - rule.max_bytes, reward=rule.reward
        )
        # Both lists begin with the oldest: the longer one holds the other.
        return list(dict.fromkeys([*aged, *crowded]))

    def drop(self, verdicts: list[int]) -> None:
        """Remove verdicts by id and give their space back."""
        delete(self._connection, verdicts)
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _check_reward(self, reward: str | None) -> None:
        rows = self._connection.execute("SELECT DISTINCT reward FROM scorers ORDER BY reward")
        rewards = [row[0] for row in rows]
        if reward is not None and reward not in rewards:
            raise ConfigError(
                f"'{self._path}' has no verdicts of '{reward}'{did_you_mean(reward, rewards)}"
            )


@contextlib.contextmanager
def opened(path: Path) -> Generator[Inventory]:
    """Open an existing cache. Raises ConfigError as `open_file` does, DataError for later
    damage."""
    connection = open_file(path, create=False)
    try:
        yield Inventory(path, connection)
    except sqlite3.Error as error:
        raise DataError(
            f"the cache '{path}' cannot be read or written ({error}); try again, or delete it: it"
            " only saves work"
        ) from error
    finally:
        connection.close()
