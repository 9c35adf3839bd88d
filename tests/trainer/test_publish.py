"""Weights travel in one file a node, which is gone afterwards, whatever happened."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from rmrl.cluster.fake import FakeProcess
from rmrl.cluster.relay import NodeFiles, Relay
from rmrl.cluster.worker_group import WorkerGroup
from rmrl.errors import EngineLostError, InfrastructureError
from rmrl.trainer.policy import TrainedModel, TrainGroup
from rmrl.trainer.publish import Publisher
from rmrl.trainer.rollouts import RolloutPool
from tests.trainer.fake_run import rollout_engine, small_config, train_worker

HERE = "a" * 56


class Reader:
    """A rollout engine that reads what it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, dict]] = []

    async def load_weights(self, path: str, *, version: int) -> None:
        self.seen.append(
            (path, version, {name: tensor.shape for name, tensor in load_file(path).items()})
        )


def publish(tmp_path: Path, engine: FakeProcess, *, size_hint_bytes: int = 1000) -> int:
    group = TrainGroup(
        WorkerGroup([train_worker(small_config(tmp_path))]), timeout_s=1.0, offloads=False
    )  # type: ignore[list-item]
    pool = RolloutPool([engine], timeout_s=1.0, sleeps=True)  # type: ignore[list-item]
    files = NodeFiles(source=HERE)
    publisher = Publisher(
        TrainedModel(group, "actor"),
        pool,
        files=files,
        engine_nodes=[HERE],
        dtype="float32",
        size_hint_bytes=size_hint_bytes,
    )
    return asyncio.run(publisher.publish(3))


def left_behind() -> list[Path]:
    return list(Path("/dev/shm").glob(f"*rmrl-weights-{os.getpid()}-*"))


def test_engines_read_the_weights_of_that_version(tmp_path: Path) -> None:
    reader = Reader()
    sent = publish(tmp_path, FakeProcess(reader, "rollout-0"))
    ((path, version, shapes),) = reader.seen
    assert (version, shapes) == (3, {"toy.logits": (64,)})
    assert sent > 64 * 4
    assert f"rmrl-weights-{os.getpid()}-3-{HERE[:12]}" in path  # two nodes never share a file
    assert not left_behind()


def test_a_lost_engine_leaves_no_file(tmp_path: Path) -> None:
    engine = rollout_engine()
    engine.dies_on = 1
    with pytest.raises(EngineLostError):
        publish(tmp_path, engine)
    assert not left_behind()


def test_no_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        InfrastructureError, match=r"the weights to publish need .* GiB of shared memory"
    ):
        publish(tmp_path, FakeProcess(Reader(), "rollout-0"), size_hint_bytes=1 << 60)


def test_only_this_nodes_files_of_that_name_are_removed(tmp_path: Path) -> None:
    name, data = f"rmrl-weights-{os.getpid()}-unit", np.frombuffer(b"abc", np.uint8)
    mine, other = Relay(HERE), Relay("b" * 56)
    paths = [Path(relay.place(name, 10)) for relay in (mine, other)]
    assert [
        relay.write(str(path), 3, data) for relay, path in zip((mine, other), paths, strict=True)
    ] == [3, 3]
    assert paths[0].read_bytes() == b"\0\0\0abc"
    assert mine.read(str(paths[0]), 4, 99).tobytes() == b"bc"
    mine.remove(name)
    assert [path.exists() for path in paths] == [False, True]
    other.remove(name)
    assert not left_behind()
