"""Rows are dealt to training processes and put back in their order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rmrl.backends.row_assignment import RowAssignment, row_assignment
from rmrl.cluster.worker_group import WorkerGroup
from rmrl.config.schema import ActorConfig, MegatronConfig
from rmrl.errors import EngineLostError
from rmrl.trainer.policy import Models, TrainedModel, TrainGroup
from rmrl.types import Metrics, Ragged, TrainBatch
from tests.patience import PATIENCE_S
from tests.support.fake_processes import FakeProcess
from tests.trainer.fake_run import small_config, train_worker


class Echo:
    """A worker whose logprobs are its tokens, negated, and which keeps what it was given."""

    def __init__(self) -> None:
        self.batches: list[TrainBatch] = []
        self.log: list[str] = []
        self.answers = True

    def on(self, role: str, method: str, *args: Any) -> Any:
        assert role == "actor"
        return getattr(self, method)(*args)

    def logprobs(self, batch: TrainBatch) -> Ragged:
        self.batches.append(batch)
        if not self.answers:
            return Ragged.of([], np.float32)
        return Ragged.of(
            [
                -row[-int(n) :]
                for row, n in zip(batch.tokens.rows(), batch.response_mask.lengths, strict=True)
            ],
            np.float32,
        )

    def logprobs_and_energies(self, batch: TrainBatch) -> tuple[Ragged, Ragged]:
        logprobs = self.logprobs(batch)
        return logprobs, Ragged(-2 * logprobs.values, logprobs.lengths)

    def update(self, mini_batches: Sequence[TrainBatch]) -> Metrics:
        self.batches += mini_batches
        return {"policy/loss": 1.0}

    def onload(self) -> None:
        self.log.append("on")

    def offload(self) -> None:
        self.log.append("off")


def batch(lengths: list[int]) -> TrainBatch:
    """Row b: one prompt token, then `lengths[b]` tokens 100 * b, 100 * b + 1, ..."""
    return TrainBatch(
        tokens=Ragged.of(
            [[1, *range(100 * b, 100 * b + n)] for b, n in enumerate(lengths)], np.int64
        ),
        response_mask=Ragged.of([np.ones(n) for n in lengths], np.float32),
    )


def policy(
    workers: int, *, offloads: bool = False, shares_gpus: bool = False
) -> tuple[TrainedModel, list[Echo]]:
    echoes = [Echo() for _ in range(workers)]
    processes = WorkerGroup([FakeProcess(echo, f"train-{i}") for i, echo in enumerate(echoes)])  # type: ignore[arg-type]
    group = TrainGroup(processes, timeout_s=PATIENCE_S, offloads=offloads, shares_gpus=shares_gpus)
    return TrainedModel(group, "actor"), echoes


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_log_probabilities_come_back_row_by_row(workers: int) -> None:
    lengths = [3, 9, 1, 4, 4, 7, 2]
    ours, echoes = policy(workers)
    got = asyncio.run(ours.logprobs(batch(lengths)))
    assert got.lengths.tolist() == lengths
    assert [row.tolist() for row in got.rows()] == [
        [-float(100 * b + i) for i in range(n)] for b, n in enumerate(lengths)
    ]
    assert sum(len(echo.batches[0]) for echo in echoes) == 7
    assert (
        max(len(echo.batches[0]) for echo in echoes) - min(len(echo.batches[0]) for echo in echoes)
        <= 1
    )


def test_log_probabilities_and_energies_come_back_together() -> None:
    ours, echoes = policy(2)
    logprobs, energies = asyncio.run(ours.logprobs_and_energies(batch([1, 3, 2])))
    assert [row.tolist() for row in logprobs.rows()] == [[0], [-100, -101, -102], [-200, -201]]
    assert [row.tolist() for row in energies.rows()] == [[0], [200, 202, 204], [400, 402]]
    assert [len(echo.batches) for echo in echoes] == [1, 1]  # one pass for both


def test_fewer_rows_than_processes() -> None:
    ours, echoes = policy(2)
    got = asyncio.run(ours.logprobs(batch([2])))
    assert got.values.tolist() == [-0.0, -1.0]
    assert sorted(len(echo.batches[0]) for echo in echoes) == [0, 1]


def test_every_process_gets_its_share_of_each_mini_batch() -> None:
    ours, echoes = policy(2)
    metrics = asyncio.run(ours.update([batch([1, 2, 3, 4]), batch([5, 6])]))
    assert metrics == {"policy/loss": 1.0}
    assert [[len(b) for b in echo.batches] for echo in echoes] == [[2, 1], [2, 1]]
    assert sum(int(echo.batches[0].response_mask.lengths.sum()) for echo in echoes) == 10


def test_rows_that_several_processes_work_on_are_stored_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four processes, two shares: tensor parallel over two."""
    stored: list[int] = []

    def store(self: FakeProcess, value: Any) -> Any:
        stored.append(sum(map(len, value)) if isinstance(value, list) else len(value))
        return value

    monkeypatch.setattr(FakeProcess, "stored", store)
    echoes = [Echo() for _ in range(4)]
    workers = WorkerGroup([FakeProcess(echo, f"train-{i}") for i, echo in enumerate(echoes)])  # type: ignore[arg-type]
    group = TrainGroup(workers, timeout_s=PATIENCE_S, offloads=False)
    ours = TrainedModel(group, "actor", RowAssignment((0, 0, 1, 1), (0, 2)))
    asyncio.run(ours.logprobs(batch([3, 9, 1])))
    assert stored == [1, 2]  # 9; 3 and 1 tokens
    asyncio.run(ours.update([batch([1, 2, 3, 4]), batch([5, 6])]))
    assert stored == [1, 2, 3, 3]
    assert [len(echo.batches[0]) for echo in echoes] == [1, 1, 2, 2]
    one_each, _ = policy(2)
    asyncio.run(one_each.logprobs(batch([3, 9, 1])))
    assert stored == [1, 2, 3, 3]  # Ray copies an argument of one process anyway


def test_the_reference_answers_beside_the_policy(tmp_path) -> None:
    worker = train_worker(small_config(tmp_path), reference=True)
    group = TrainGroup(WorkerGroup([worker]), timeout_s=PATIENCE_S, offloads=False)  # type: ignore[list-item]

    async def both() -> tuple[Ragged, Ragged]:
        return await TrainedModel(group, "actor").logprobs(batch([2, 1])), await TrainedModel(
            group, "ref"
        ).logprobs(batch([2, 1]))

    policy_logprobs, reference = asyncio.run(both())
    assert (
        policy_logprobs.values.tolist()
        == reference.values.tolist()
        == pytest.approx([-np.log(64)] * 3)
    )


@pytest.mark.parametrize(("offloads", "wanted"), [(True, ["on", "off"]), (False, [])])
def test_offloading_only_where_asked(offloads: bool, wanted: list[str]) -> None:
    ours, echoes = policy(1, offloads=offloads)

    async def go() -> None:
        async with ours.on_device():
            pass

    asyncio.run(go())
    assert echoes[0].log == wanted


def test_a_stay_ends_with_the_next_block_that_does_not_stay() -> None:
    ours, echoes = policy(1, offloads=True)

    async def go() -> None:
        async with ours.group.on_device(stays=True):
            pass
        async with ours.group.on_device(stays=True):
            assert echoes[0].log == ["on"]
        async with ours.on_device():
            assert echoes[0].log == ["on"]
        assert echoes[0].log == ["on", "off"]
        await ours.group.leave()  # it has left
        async with ours.group.on_device(stays=True):
            pass
        await ours.group.leave()

    asyncio.run(go())
    assert echoes[0].log == ["on", "off", "on", "off"]


def test_after_an_error_in_a_block_nothing_is_taken_to_be_on_the_devices() -> None:
    ours, echoes = policy(1, offloads=True)

    async def go() -> None:
        async with ours.group.on_device(stays=True):
            pass
        with contextlib.suppress(RuntimeError):
            async with ours.group.on_device(stays=True):
                raise RuntimeError("out of memory")
        async with ours.on_device():
            pass

    asyncio.run(go())
    assert echoes[0].log == ["on", "on", "off"]  # `onload` where all is there moves nothing


def test_on_shared_gpus_cached_memory_is_given_back_also_without_offloading() -> None:
    ours, echoes = policy(1, shares_gpus=True)

    async def go() -> None:
        async with ours.on_device():
            pass

    asyncio.run(go())
    assert echoes[0].log == ["off"]  # an engine's `offload` moves nothing then, and frees the cache


def test_an_error_is_not_held_up_by_a_process_that_waits_for_the_failed_one() -> None:
    """In a collective operation, say: it would take the next call at its deadline only, whose error
    would hide the first."""
    ours, echoes = policy(2, offloads=True)

    async def go() -> None:
        async with ours.on_device():
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        asyncio.run(go())
    assert [echo.log for echo in echoes] == [["on"], ["on"]]


def test_a_dead_process_is_named() -> None:
    ours, _ = policy(2)
    ours.group._workers.workers[1].dies_on = 1  # type: ignore[attr-defined]
    with pytest.raises(EngineLostError, match="train-1"):
        asyncio.run(ours.logprobs(batch([1, 1])))


def test_models_share_a_group_once_and_a_critic_may_stand_apart() -> None:
    (actor, echoes), (other, others) = policy(1, offloads=True), policy(1, offloads=True)
    beside, apart = (
        Models(actor, critic=TrainedModel(actor.group, "critic")),
        Models(actor, critic=other),
    )
    assert (beside.apart, apart.apart) == (False, True)

    async def go(models: Models) -> None:
        async with models.on_device():
            pass

    asyncio.run(go(beside))
    assert (echoes[0].log, others[0].log) == (["on", "off"], [])
    asyncio.run(go(apart))
    assert (echoes[0].log, others[0].log) == (["on", "off"] * 2, ["on", "off"])


def megatron(world: int, **sizes: int) -> tuple[TrainedModel, list[Echo]]:
    ours, echoes = policy(world)
    actor = ActorConfig(strategy="megatron", megatron=MegatronConfig(**sizes))
    return (
        TrainedModel(
            ours.group, "actor", row_assignment(actor, world, section="actor_rollout_ref.actor")
        ),
        echoes,
    )


def test_processes_that_share_a_model_get_the_same_rows_and_one_of_them_answers() -> None:
    """Two shares in eight processes: ranks are tensor + 2 (share + 2 stage), so ranks 4 and 6
    answer and the others need not."""
    ours, echoes = megatron(8, tensor_model_parallel_size=2, pipeline_model_parallel_size=2)
    for rank in (0, 1, 2, 3, 5, 7):
        echoes[rank].answers = False
    lengths = [3, 9, 1, 4, 4]
    got = asyncio.run(ours.logprobs(batch(lengths)))
    assert [row.tolist() for row in got.rows()] == [
        [-float(100 * b + i) for i in range(n)] for b, n in enumerate(lengths)
    ]
    given = [echo.batches[0].tokens.values.tolist() for echo in echoes]
    assert given[0] == given[1] == given[4] == given[5]
    assert given[2] == given[3] == given[6] == given[7]
    assert len(given[0]) + len(given[2]) == 5 + sum(lengths)


def test_updates_are_dealt_to_shares_too() -> None:
    ours, echoes = megatron(4, tensor_model_parallel_size=2)
    asyncio.run(ours.update([batch([1, 2, 3, 4]), batch([5, 6])]))
    assert [[len(b) for b in echo.batches] for echo in echoes] == [[2, 1]] * 4
    tokens = [[b.tokens.values.tolist() for b in echo.batches] for echo in echoes]
    assert tokens[0] == tokens[1] != tokens[2] == tokens[3]
