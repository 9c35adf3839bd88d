"""Weights travel in one file that is gone afterwards, whatever happened."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rmrl.cluster.fake import FakeProcess
from rmrl.cluster.worker_group import WorkerGroup
from rmrl.errors import EngineLostError
from rmrl.trainer.policy import Policy
from rmrl.trainer.publish import publish_weights
from rmrl.trainer.rollouts import RolloutPool
from tests.trainer.fake_run import rollout_engine, small_config, train_worker


class Reader:
    """A rollout engine that reads what it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, dict]] = []

    async def load_weights(self, path: str, *, version: int) -> None:
        self.seen.append((path, version, {name: tensor.shape for name, tensor in load_file(path).items()}))


def publish(tmp_path: Path, engine: FakeProcess, *, version: int = 3) -> int:
    policy = Policy(WorkerGroup([train_worker(small_config(tmp_path))]), timeout_s=1.0, offloads=False)  # type: ignore[list-item]
    pool = RolloutPool([engine], timeout_s=1.0, sleeps=True)  # type: ignore[list-item]
    return asyncio.run(publish_weights(policy, pool, version=version, dtype="float32", size_hint_bytes=1000))


def left_behind() -> list[Path]:
    return list(Path("/dev/shm").glob(f"*rmrl-weights-{os.getpid()}-*"))


def test_engines_read_the_weights_of_that_version(tmp_path: Path) -> None:
    reader = Reader()
    sent = publish(tmp_path, FakeProcess(reader, "rollout-0"))
    ((path, version, shapes),) = reader.seen
    assert (version, shapes) == (3, {"toy.logits": (64,)})
    assert sent > 64 * 4
    assert not Path(path).exists()
    assert not left_behind()


def test_a_lost_engine_leaves_no_file(tmp_path: Path) -> None:
    engine = rollout_engine()
    engine.dies_on = 1
    with pytest.raises(EngineLostError):
        publish(tmp_path, engine)
    assert not left_behind()
