"""Prompts are dealt to engines and come back in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from rmrl.errors import EngineLostError, InfrastructureError
from rmrl.trainer.rollouts import RolloutPool
from rmrl.types import Prompt, Rollouts, Sampling
from tests.patience import PATIENCE_S
from tests.support.fake_processes import FakeProcess
from tests.trainer.fake_run import dying, rollout_engine

PROMPTS = [
    Prompt(id=f"p:{i}", messages=[{"role": "user", "content": str(i)}], token_ids=(i, i + 1))
    for i in range(5)
]


def generate(
    engines: list[FakeProcess], *, n: int = 3, seed: int | None = 7, prompts: list[Prompt] = PROMPTS
) -> Rollouts:
    pool = RolloutPool(engines, timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[arg-type]
    return asyncio.run(pool.generate(prompts, Sampling(max_tokens=8, n=n, seed=seed)))


@pytest.mark.parametrize("engines", [1, 2, 3, 7])
def test_groups_are_contiguous_and_in_the_order_of_the_prompts(engines: int) -> None:
    got = generate([rollout_engine(replica=i) for i in range(engines)])
    assert [r.prompt.id for r in got.responses] == [p.id for p in PROMPTS for _ in range(3)]
    assert got.group_size == 3
    assert got.group_ids_B.tolist() == [g for g in range(5) for _ in range(3)]


def test_every_sample_of_a_group_is_its_own() -> None:
    got = generate([rollout_engine()])
    assert len({tuple(r.token_ids) for r in got.responses}) > 12  # of 15; short ones may coincide


def test_the_same_seed_gives_the_same_samples_and_another_gives_others() -> None:
    first, again, other = (generate([rollout_engine()], seed=seed) for seed in (7, 7, 8))
    assert [r.token_ids.tolist() for r in first.responses] == [
        r.token_ids.tolist() for r in again.responses
    ]
    assert [r.token_ids.tolist() for r in first.responses] != [
        r.token_ids.tolist() for r in other.responses
    ]


def test_engines_with_the_same_prompt_draw_differently() -> None:
    twice = [PROMPTS[0], PROMPTS[0]]
    got = generate(
        [rollout_engine(lengths=[6, 6]), rollout_engine(lengths=[6, 6])], n=1, prompts=twice
    )
    assert got.responses[0].token_ids.tolist() != got.responses[1].token_ids.tolist()


def test_an_engine_without_prompts_is_not_called() -> None:
    engines = [rollout_engine(), rollout_engine()]
    generate(engines, prompts=PROMPTS[:1])
    assert [e.calls.count("generate") for e in engines] == [1, 0]


def test_finished_samples_are_counted_as_they_come() -> None:
    pool = RolloutPool([rollout_engine()], timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[list-item]
    seen: list[int] = []
    asyncio.run(pool.generate(PROMPTS[:2], Sampling(max_tokens=4, n=2), on_finished=seen.append))
    assert seen == [1, 2, 3, 4]


@pytest.mark.parametrize(("sleeps", "wanted"), [(True, ["sleep", "wake", "sleep"]), (False, [])])
def test_sleeps_only_if_told_to_and_only_once(sleeps: bool, wanted: list[str]) -> None:
    engine = rollout_engine()

    async def go() -> None:
        pool = RolloutPool([engine], timeout_s=PATIENCE_S, sleeps=sleeps)  # type: ignore[list-item]
        await pool.wake()  # awake from the start
        await pool.sleep()
        await pool.sleep()
        await pool.wake()
        await pool.sleep()

    asyncio.run(go())
    assert engine.calls == wanted


def test_a_lost_engine_is_named() -> None:
    engines = [rollout_engine(), rollout_engine(replica=1)]
    engines[1].dies_on = 1
    with pytest.raises(EngineLostError, match="rollout-1"):
        generate(engines)


@dataclass
class Pool:
    """A pool whose lost engines are started again; the present weights have version 3."""

    engines: list[FakeProcess]
    sleeps: bool = True
    started: list[int] = field(default_factory=list)
    then: list[FakeProcess] = field(default_factory=list)
    """What is started, in order; whole engines after these."""

    def __post_init__(self) -> None:
        self.pool = RolloutPool(
            self.engines,
            timeout_s=PATIENCE_S,
            sleeps=self.sleeps,
            start=self.start,  # type: ignore[arg-type]
        )
        self.pool.republish = self.republish

    async def start(self, number: int) -> Any:
        self.started.append(number)
        return self.then.pop(0) if self.then else rollout_engine(replica=number)

    async def republish(self) -> None:
        await self.pool.sleep()
        await self.publish(3)

    async def publish(self, version: int) -> None:
        await self.pool.load_weights(["weights"] * len(self.engines), version=version)
        await self.pool.wake()


SAMPLING = Sampling(max_tokens=8, n=3, seed=7)


async def drawn(pool: Pool) -> tuple[Rollouts, list[int]]:
    """The samples, and their positions in the order in which they came."""
    positions: list[int] = []
    got = await pool.pool.generate(
        PROMPTS, SAMPLING, on_response=lambda position, _: positions.append(position)
    )
    return got, positions


@pytest.mark.parametrize("after", [0, 1, 4])
async def test_the_samples_of_a_lost_engine_are_drawn_again_and_the_finished_ones_kept(
    after: int, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = Pool([rollout_engine(), rollout_engine(replica=1)])
    await quiet.publish(3)
    expected, _ = await drawn(quiet)
    disturbed = Pool([rollout_engine(), dying(replica=1, after=after)])
    await disturbed.publish(3)
    got, positions = await drawn(disturbed)
    assert got == expected
    assert {response.policy_version for response in got.responses} == {3}
    assert sorted(positions) == list(range(15))
    # Engine 1 has prompts 1 and 3, with three samples each.
    new: Any = disturbed.pool.engines[1]
    assert (disturbed.started, new.object._samples) == ([1], 6 - after)
    assert disturbed.pool.take_restarts() == 1
    assert disturbed.pool.take_restarts() == 0
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == ["the process of rollout-1.generate died; starting rollout engine 1 again"]


async def test_the_second_loss_of_an_engine_in_one_step_ends_the_run() -> None:
    pool = Pool([rollout_engine(), dying(replica=1, after=2)], then=[dying(replica=1, after=1)])
    await pool.publish(3)
    with pytest.raises(EngineLostError, match=r"rollout-1\.generate died"):
        await drawn(pool)
    assert pool.started == [1]


async def test_with_new_weights_an_engine_may_be_started_again_once_more() -> None:
    pool = Pool([dying(after=2)], then=[dying(after=100)])
    await pool.publish(3)
    await drawn(pool)
    second: Any = pool.pool.engines[0]
    second.after = second.given + 1
    await pool.publish(4)
    await drawn(pool)
    assert pool.started == [0, 0]


@pytest.mark.parametrize("when", ["asleep", "before it sleeps"])
async def test_an_engine_that_dies_between_two_batches_is_started_for_the_next(when: str) -> None:
    engines = [rollout_engine(), rollout_engine(replica=1)]
    pool = Pool(engines)
    await pool.publish(3)
    expected, _ = await drawn(pool)
    if when == "asleep":
        await pool.pool.sleep()
    engines[1].object = None
    await pool.pool.sleep()
    await pool.pool.wake()
    assert (await drawn(pool))[0] == expected
    assert pool.started == [1]


async def test_an_engine_that_dies_while_weights_are_loaded_reads_the_same_file() -> None:
    engines = [rollout_engine(), rollout_engine(replica=1)]
    pool = Pool(engines)
    engines[1].dies_on = 1
    await pool.publish(3)
    processes: Any = pool.pool.engines
    published = [(process.object.published, process.object.version) for process in processes]
    assert published == [(["weights"], 3)] * 2
    assert pool.started == [1]


async def turns_of(pool: Pool, keys: int) -> list[list[int]]:
    """A turn of each key, all at once."""
    turns = [pool.pool.draw([1, 2], SAMPLING, f"key {number}") for number in range(keys)]
    return [turn.token_ids.tolist() for turn in await asyncio.gather(*turns)]


async def test_the_turns_of_a_key_go_to_one_engine() -> None:
    engines = [rollout_engine(), rollout_engine(replica=1)]
    pool = Pool(engines)
    for _ in range(3):
        await pool.pool.draw([1, 2], SAMPLING, "one key")
    assert sorted(engine.calls.count("generate") for engine in engines) == [0, 3]
    await turns_of(pool, 40)
    assert min(engine.calls.count("generate") for engine in engines) > 8


@pytest.mark.parametrize("after", [0, 1, 4])
async def test_turns_of_a_lost_engine_are_drawn_again(after: int) -> None:
    quiet = Pool([rollout_engine(), rollout_engine(replica=1)])
    await quiet.publish(3)
    expected = await turns_of(quiet, 20)
    disturbed = Pool([rollout_engine(), dying(replica=1, after=after)])
    await disturbed.publish(3)
    assert await turns_of(disturbed, 20) == expected
    assert disturbed.started == [1]
    again = await turns_of(disturbed, 20)
    assert again == expected


async def test_the_second_loss_while_turns_are_drawn_ends_the_run() -> None:
    pool = Pool([dying(after=2)], then=[dying(after=1)])
    await pool.publish(3)
    with pytest.raises(EngineLostError, match=r"rollout-0\.generate died"):
        await turns_of(pool, 20)
    assert pool.started == [0]


async def test_an_engine_that_ends_early_without_an_error_is_named_as_such() -> None:
    class Empty(FakeProcess):
        async def stream(self, method: str, *args: Any, timeout_s: float) -> AsyncIterator[Any]:
            del method, args, timeout_s
            for part in ():
                yield part

    pool = Pool([Empty(rollout_engine().object, "rollout-0")])
    with pytest.raises(InfrastructureError, match="gave 0 of 15 samples"):
        await asyncio.wait_for(drawn(pool), 60)


async def test_without_a_lost_engine_nothing_is_started() -> None:
    pool = RolloutPool([rollout_engine()], timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[list-item]
    assert await pool.restart_lost() == []


async def test_the_bytes_of_sleeping_engines_are_reported_once() -> None:
    engines = [rollout_engine(replica=i) for i in range(2)]
    pool = RolloutPool(engines, timeout_s=PATIENCE_S, sleeps=True)  # type: ignore[arg-type]
    reports: list[list[int]] = []
    pool.on_asleep = lambda counts: reports.append(list(counts))
    for _ in range(2):
        await pool.sleep()
        await pool.wake()
    assert reports == [[2**29, 2**29]]  # of a fake engine that sleeps at level 1


async def test_engines_that_never_sleep_are_not_measured() -> None:
    pool = RolloutPool([rollout_engine()], timeout_s=PATIENCE_S, sleeps=False)  # type: ignore[list-item]
    pool.on_asleep = lambda counts: pytest.fail(f"measured: {counts}")
    await pool.sleep()
