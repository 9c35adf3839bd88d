"""The SQLite file: what it keeps, what it drops, and how it behaves when it is not what it should
be."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import TextOutput, ValueOutput
from rmrl.rewards.cache.file import APPLICATION_ID, open_file, used_bytes
from rmrl.rewards.cache.store import CacheStore
from tests.patience import PATIENCE_S

LARGE = 2**30


def number(i: int) -> bytes:
    return i.to_bytes(32, "big")


def opened(path: Path, *, max_bytes: int = LARGE) -> CacheStore:
    return CacheStore(path, max_bytes=max_bytes)


def put(store: CacheStore, *numbers: int, size: int = 0, reward: str = "a") -> int:
    text = "".join(chr(0x4E00 + (i * 7919) % 20000) for i in range(size))  # hardly compressible
    results = {number(i): [TextOutput(f"{i}{text}", "stop", 1, 1)] for i in numbers}
    return store.put_many(results, scorer="s", reward=reward)


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = open_file(path, create=False)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


def test_kept_over_closing_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "c.sqlite"
    store = opened(path)
    assert store.get_many([number(1)]) == {}
    assert (
        store.put_many(
            {number(1): ValueOutput(1.5, 7), number(2): ValueOutput(-2.0, 8)},
            scorer="key",
            reward="helpful",
        )
        == 2
    )
    store.close()
    store.close()
    store = opened(path)
    assert store.get_many([number(2), number(3), number(1)]) == {
        number(1): ValueOutput(1.5, 7, cached=True),
        number(2): ValueOutput(-2.0, 8, cached=True),
    }
    store.get_many([number(1)])
    store.close()
    # {"value":1.5,"in":7} has 20 characters, {"value":-2.0,"in":8} 21, and a key has 32
    query = (
        "SELECT hits, bytes, scorer, reward FROM uses JOIN scorers ON scorers.id = scorer_id ORDER"
        " BY uses.id"
    )
    assert rows(path, query) == [(2, 52, "key", "helpful"), (1, 53, "key", "helpful")]


def test_the_first_answer_stays(tmp_path: Path) -> None:
    store = opened(tmp_path / "c.sqlite")
    assert put(store, 1, 2) == 2
    assert (
        store.put_many(
            {number(1): ValueOutput(9.0, 1), number(3): ValueOutput(9.0, 1)}, scorer="s", reward="b"
        )
        == 1
    )
    assert store.get_many([number(1)]) == {number(1): [TextOutput("1", "stop", 1, 1, cached=True)]}
    store.close()


def test_failures_are_not_stored(tmp_path: Path) -> None:
    store = opened(tmp_path / "c.sqlite")
    bad = {
        number(1): ValueOutput(float("nan"), 1),
        number(2): ValueOutput(0.0, 1, failure="timeout"),
    }
    assert store.put_many(bad, scorer="s", reward="a") == 0
    assert store.get_many([number(1), number(2)]) == {}
    store.close()


def test_more_keys_than_one_question_holds(tmp_path: Path) -> None:
    store = opened(tmp_path / "c.sqlite")
    put(store, *range(1200))
    found = store.get_many([number(i) for i in range(5000)])
    assert [
        key
        for key in found
        if found[key] != [TextOutput(str(int.from_bytes(key, "big")), "stop", 1, 1, cached=True)]
    ] == []
    assert len(found) == 1200
    store.close()


def test_the_least_recently_used_go_first_and_the_file_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    limit = 250 * 1024
    store = opened(path, max_bytes=limit)
    for i in range(20):  # about 9 KB each: 27 of them fit
        put(store, i, size=4000)
    assert len(store.get_many([number(i) for i in range(20)])) == 20
    store.get_many([number(0), number(1)])  # used again, so others must go
    for i in range(20, 35):
        put(store, i, size=4000)
    left = [int.from_bytes(key, "big") for key in store.get_many([number(i) for i in range(35)])]
    store.close()
    assert {0, 1, *range(20, 35)} <= set(left)
    assert 2 not in left
    gone = sorted(set(range(2, 20)) - set(left))
    assert gone == list(range(2, 2 + len(gone)))  # the oldest, and only they
    assert path.stat().st_size <= limit
    assert (
        rows(path, "SELECT count(*) FROM uses")
        == rows(path, "SELECT count(*) FROM verdicts")
        == [(len(left),)]
    )


def test_one_that_is_larger_than_the_limit_does_not_hang(tmp_path: Path) -> None:
    store = opened(tmp_path / "c.sqlite", max_bytes=50_000)
    put(store, 1, size=50_000)
    assert store.get_many([number(1)]) == {}
    store.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a cache of verdicts"),
        (b"prompt,response\n" * 20, "is not a cache of verdicts"),
        (b"SQLite format 3\x00", "is not a cache of verdicts"),
        (b"SQLite format 3\x00" + bytes(84), "another program"),
    ],
)
def test_a_foreign_file_is_left_alone(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "c.sqlite"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        opened(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE chapters (text)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        opened(path)
    assert path.read_bytes() == before


def test_another_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    opened(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(ConfigError, match="has format 7"):
        opened(path)


def filled(path: Path) -> None:
    store = opened(path)
    put(store, *range(200), size=300)
    store.close()


def test_a_torn_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    filled(path)
    torn = path.read_bytes()[:8192]
    path.write_bytes(torn)
    with pytest.raises(ConfigError, match=r"c\.sqlite' is damaged .* and was left as it is"):
        opened(path)
    assert path.read_bytes() == torn


def test_damage_found_later_ends_the_cache_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.sqlite"
    store = opened(path)
    put(store, *range(400))
    store.close()
    whole = path.read_bytes()
    page = whole.index(b'[["350",') // 4096 * 4096
    path.write_bytes(whole[:page] + b"\xa5" * 4096 + whole[page + 4096 :])
    store = opened(path)
    assert store.get_many([number(0)]) != {}
    store.get_many([number(350)])
    assert put(store, 1000) == 0
    assert not store.in_use
    (message,) = caplog.messages
    assert message.endswith("scoring goes on without it.")
    assert store.get_many([number(1)]) == {}
    store.close()


def test_a_folder_and_a_place_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        opened(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be opened for writing"):
        opened(tmp_path / "file" / "c.sqlite")
    with pytest.raises(ConfigError, match="there is no cache"):
        open_file(tmp_path / "none.sqlite", create=False)


def test_a_full_disk_is_said_once_and_ends_the_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.sqlite"
    store = opened(path)
    assert put(store, 1) == 1
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]  # type: ignore[union-attr]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")  # type: ignore[union-attr]
    assert put(store, *range(2, 100), size=1000) == 0
    assert put(store, *range(2, 100), size=1000) == 0
    assert caplog.messages == [
        f"the cache {path} can no longer be used (its disk is full); scoring goes on without it."
    ]
    store.close()
    store = opened(path)
    assert set(store.get_many([number(i) for i in range(100)])) == {
        number(1)
    }  # the failed write left nothing behind
    store.close()


def test_a_verdict_that_cannot_be_read_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    store = opened(path)
    put(store, 1, 2)
    store.close()
    connection = open_file(path, create=False)
    connection.execute("UPDATE verdicts SET value = X'7b' WHERE id = 1")
    connection.close()
    store = opened(path)
    assert set(store.get_many([number(1), number(2)])) == {number(2)}
    store.close()


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = opened(tmp_path / "c.sqlite")
    threads = [
        threading.Thread(target=put, args=(store, *range(i * 50, i * 50 + 100))) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE_S)
    assert len(store.get_many([number(i) for i in range(250)])) == 250
    store.close()


WRITER = """
import logging, sys
from rmrl.rewards.cache.store import CacheStore
from rmrl.inference.reward_engine_base import ValueOutput
path, first = sys.argv[1], int(sys.argv[2])
logging.basicConfig(stream=sys.stdout)
store = CacheStore(path, max_bytes=2**30)
stored = 0
for i in range(first, first + 60):
    stored += store.put_many({i.to_bytes(32, "big"): ValueOutput(float(i), 1)}, scorer="s", reward="a")
    assert store.get_many([i.to_bytes(32, "big")])
store.close()
print(stored)
"""


def test_processes_share_a_file_from_its_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    command = [sys.executable, "-c", WRITER, str(path)]
    running = [
        subprocess.Popen([*command, str(first)], stdout=subprocess.PIPE, text=True)
        for first in (0, 30, 60)
    ]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    # 0..119, each stored by exactly one of them; a warning beside the number is no number
    assert sum(int(output) for output in outputs) == 120
    assert rows(path, "SELECT count(*), sum(hits) FROM uses") == [(120, 180)]


def test_those_that_start_together_make_one_file(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    barrier = threading.Barrier(6)

    def start() -> None:
        barrier.wait(timeout=PATIENCE_S)
        opened(path).close()

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE_S)
    assert rows(path, "SELECT count(*) FROM uses") == [(0,)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_busy_file_costs_its_verdicts_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.sqlite"
    store = opened(path)
    store._connection.execute("PRAGMA busy_timeout = 50")  # type: ignore[union-attr]
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    # The file stays locked until both have been given up.
    assert (put(store, 1), put(store, 2)) == (0, 0)
    other.execute("ROLLBACK")
    other.close()
    assert put(store, 1) == 1
    assert store.in_use
    (message,) = caplog.messages
    assert "held by another process" in message
    store.close()


def test_the_head_says_whose_file_it_is(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    opened(path).close()
    assert path.read_bytes()[68:72] == b"rmrl" == APPLICATION_ID.to_bytes(4, "big")
    connection = open_file(path, create=False)
    assert used_bytes(connection) == path.stat().st_size
    connection.close()
