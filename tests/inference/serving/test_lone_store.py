"""The process group of a single worker needs no file in the temporary folder."""

from __future__ import annotations

import torch.distributed as dist

from rmrl.inference.vllm.lone_store import in_memory

FILE = "file:///tmp/vllm_dist_1"


def test_other_methods_stay_as_they_are() -> None:
    assert in_memory("tcp://127.0.0.1:2", processes=1) == "tcp://127.0.0.1:2"
    assert in_memory(FILE, processes=2) == FILE


def test_a_store_in_memory_keeps_what_is_set_in_it() -> None:
    path = in_memory(FILE, processes=1).removeprefix("file://")
    store = dist.FileStore(path, 1)
    for number in range(100):
        store.set(f"key {number}", str(number))
    assert store.get("key 0") == b"0"
    assert store.get("key 99") == b"99"
    assert in_memory(FILE, processes=1).removeprefix("file://") != path
