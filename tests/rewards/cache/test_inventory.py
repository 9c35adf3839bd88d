"""Sizes of a cache file."""

from __future__ import annotations

from pathlib import Path

from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.cache.inventory import opened
from rmrl.rewards.cache.store import CacheStore


def test_the_size_of_a_file_is_that_on_disk_with_its_log(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    store = CacheStore(path, max_bytes=2**30)
    store.put_many({bytes(32): ValueOutput(1.5, 7)}, scorer="s", reward="r")
    store.close()
    with opened(path) as inventory:
        files = [path, path.with_name("c.sqlite-wal")]
        sizes = [file.stat().st_size for file in files if file.exists()]
        assert inventory.file_bytes == sum(sizes)
        assert 0 < inventory.used_bytes <= sizes[0]
