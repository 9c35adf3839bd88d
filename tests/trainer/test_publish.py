"""Weights travel in one file a node, which is gone afterwards, whatever happened."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors.torch import load_file

from rmrl.cluster.file_broadcast import NodeFiles, Relay
from rmrl.cluster.worker_group import WorkerGroup
from rmrl.errors import EngineLostError, InfrastructureError
from rmrl.inference.weights.sender import Sent, TransferLink
from rmrl.trainer.policy import TrainedModel, TrainGroup
from rmrl.trainer.publish import Publisher, TransferPublisher
from rmrl.trainer.rollouts import RolloutPool
from tests.patience import PATIENCE_S
from tests.support.fake_processes import FakeProcess
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
        WorkerGroup([train_worker(small_config(tmp_path))]), timeout_s=PATIENCE_S, offloads=False
    )  # type: ignore[list-item]
    pool = RolloutPool([engine], timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[list-item]
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


class Rank:
    """A training process; `log` is that of the whole run."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.arrives: Callable[[], bool] = lambda: True
        """Called in the middle of a transfer; whether every engine gets all of it."""

    def onload(self) -> None:
        self.log.append("models on")

    def offload(self) -> None:
        self.log.append("models off")

    def open_transfer(self, link: TransferLink) -> None:
        self.log.append("connect")

    def send_weights(self, version: int) -> Sent:
        self.log.append(f"send {version}")
        return Sent(8, complete=self.arrives())


@pytest.mark.parametrize("when", ["asleep", "before it sleeps"])
async def test_an_engine_lost_in_training_is_started_before_a_transfer_without_the_models(
    when: str,
) -> None:
    log: list[str] = []
    engines = [rollout_engine(), rollout_engine(replica=1)]
    new = rollout_engine(replica=1)

    async def start(number: int) -> Any:
        log.append(f"start {number}")
        return new

    workers: Any = [FakeProcess(Rank(log), "train-0")]
    group = TrainGroup(WorkerGroup(workers), timeout_s=PATIENCE_S, offloads=True)
    living: Any = engines
    pool = RolloutPool(living, timeout_s=PATIENCE_S, sleeps=True, start=start)
    link = TransferLink(transport="ipc", rank=0, client=cast("Any", None), dtype="float32")
    publisher = TransferPublisher(TrainedModel(group, "actor"), pool, at(link))
    await publisher.open()
    if when == "asleep":
        await pool.sleep(level=2)
    async with group.on_device(stays=True):
        log.append("update")
    engines[1].object = None
    await pool.sleep(level=2)
    assert await publisher.publish(3) == 8
    assert log == [
        "connect",
        "models on",
        "update",
        "models off",
        "start 1",
        "connect",
        "models on",
        "send 3",
        "models off",
    ]
    # It slept while the models were on the devices, as the others did.
    assert new.calls == ["sleep", "wake"]
    await pool.sleep(level=2)
    await publisher.publish(4)
    assert log[9:] == ["models on", "send 4", "models off"]


def at(link: TransferLink) -> Any:
    async def made(_: Any) -> TransferLink:
        return link

    return made


async def transfer(
    rank: Rank, *, after_loss: Any = None
) -> tuple[TransferPublisher, RolloutPool, list[FakeProcess]]:
    """A connected publisher to two engines that sleep; the log says which are started again."""
    engines = [rollout_engine(), rollout_engine(replica=1)]

    async def start(number: int) -> Any:
        rank.log.append(f"start {number}")
        engines[number] = rollout_engine(replica=number)
        return engines[number]

    workers: Any = [FakeProcess(rank, "train-0")]
    group = TrainGroup(WorkerGroup(workers), timeout_s=30.0, offloads=True)
    living: Any = list(engines)
    pool = RolloutPool(living, timeout_s=30.0, sleeps=True, start=start)
    link = TransferLink(transport="ipc", rank=0, client=cast("Any", None), dtype="float32")
    model = TrainedModel(group, "actor")
    publisher = TransferPublisher(model, pool, at(link), after_loss=after_loss)
    await publisher.open()
    await pool.sleep(level=2)
    return publisher, pool, engines


async def test_an_engine_lost_in_the_middle_of_a_transfer_is_started_and_all_get_it_again() -> None:
    rank = Rank([])
    publisher, pool, engines = await transfer(rank)
    interrupted = iter([False])

    def dies_once() -> bool:
        if next(interrupted, True):
            return True
        engines[1].object = None
        return False

    rank.arrives = dies_once
    assert await publisher.publish(3) == 8
    sent = ["models on", "send 3", "models off"]
    assert rank.log == ["connect", *sent, "start 1", "connect", *sent]
    assert engines[1].calls == ["sleep", "wake"]
    assert pool.take_restarts() == 1
    await pool.sleep(level=2)
    await publisher.publish(4)
    assert rank.log[9:] == ["models on", "send 4", "models off"]


async def test_the_second_loss_of_an_engine_in_one_transfer_ends_the_run() -> None:
    rank = Rank([])
    publisher, _, engines = await transfer(rank)

    def dies() -> bool:
        engines[1].object = None
        return False

    rank.arrives = dies
    with pytest.raises(EngineLostError, match="rollout-1"):
        await publisher.publish(3)
    assert rank.log.count("start 1") == 1


async def test_an_engine_that_lives_but_missed_the_weights_ends_the_run() -> None:
    rank = Rank([])
    publisher, _, _ = await transfer(rank)
    rank.arrives = lambda: False
    with pytest.raises(EngineLostError, match="could not be reached while new weights"):
        await publisher.publish(3)
    assert rank.log.count("send 3") == 1


class Taken:
    """What publishes after a loss."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.closed = False

    async def publish(self, version: int) -> int:
        self.versions.append(version)
        return 16

    async def close(self) -> None:
        self.closed = True


async def test_a_connection_that_ends_with_an_engine_is_followed_by_another_way() -> None:
    rank, taken = Rank([]), Taken()

    async def after_loss() -> Taken:
        return taken

    publisher, _, engines = await transfer(rank, after_loss=after_loss)
    assert await publisher.publish(3) == 8
    engines[0].object = None
    assert [await publisher.publish(version) for version in (4, 5)] == [16, 16]
    assert taken.versions == [4, 5]
    assert rank.log == ["connect", "models on", "send 3", "models off", "start 0"]
    await publisher.close()
    assert taken.closed


async def test_an_engine_that_may_not_be_started_again_ends_the_run_before_a_transfer() -> None:
    log: list[str] = []
    engines = [rollout_engine(), rollout_engine(replica=1)]
    workers: Any = [FakeProcess(Rank(log), "train-0")]
    group = TrainGroup(WorkerGroup(workers), timeout_s=PATIENCE_S, offloads=True)
    living: Any = engines
    pool = RolloutPool(living, timeout_s=PATIENCE_S, sleeps=True)
    link = TransferLink(transport="nccl", rank=0, client=cast("Any", None), dtype="float32")
    publisher = TransferPublisher(TrainedModel(group, "actor"), pool, at(link))
    engines[1].object = None
    with pytest.raises(EngineLostError, match="rollout-1"):
        await publisher.publish(3)
    assert log == []


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


async def test_the_step_says_which_transport_was_used_and_its_seconds(tmp_path: Path) -> None:
    """perf/publish/ipc_s where weights were sent, perf/publish/file_s where files have taken over."""
    publisher, _, _ = await transfer(Rank([]))
    await publisher.publish(3)
    durations = publisher._policy.group.durations.take()
    assert durations["perf/publish/ipc_s"] >= 0
    assert "perf/publish/file_s" not in durations
    group = TrainGroup(
        WorkerGroup([train_worker(small_config(tmp_path))]), timeout_s=PATIENCE_S, offloads=False
    )  # type: ignore[list-item]
    pool = RolloutPool([FakeProcess(Reader(), "r")], timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[list-item]
    in_files = Publisher(
        TrainedModel(group, "actor"),
        pool,
        files=NodeFiles(source=HERE),
        engine_nodes=[HERE],
        dtype="float32",
        size_hint_bytes=1000,
    )
    await in_files.publish(3)
    assert group.durations.take()["perf/publish/file_s"] >= 0
