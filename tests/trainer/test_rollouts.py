"""Prompts are dealt to engines and come back in order."""

from __future__ import annotations

import asyncio

import pytest

from rmrl.cluster.fake import FakeProcess
from rmrl.errors import EngineLostError
from rmrl.trainer.rollouts import RolloutPool
from rmrl.types import Prompt, Rollouts, Sampling
from tests.trainer.fake_run import rollout_engine

PROMPTS = [
    Prompt(id=f"p:{i}", messages=[{"role": "user", "content": str(i)}], token_ids=(i, i + 1))
    for i in range(5)
]


def generate(
    engines: list[FakeProcess], *, n: int = 3, seed: int | None = 7, prompts: list[Prompt] = PROMPTS
) -> Rollouts:
    pool = RolloutPool(engines, timeout_s=5.0, sleeps=True)  # type: ignore[arg-type]
    return asyncio.run(pool.generate(prompts, Sampling(max_tokens=8, n=n, seed=seed)))


@pytest.mark.parametrize("engines", [1, 2, 3, 7])
def test_groups_are_contiguous_and_in_the_order_of_the_prompts(engines: int) -> None:
    got = generate([rollout_engine(replica=i) for i in range(engines)])
    assert [r.prompt.id for r in got.responses] == [p.id for p in PROMPTS for _ in range(3)]
    assert got.group_size == 3
    assert got.group_ids_B.tolist() == [g for g in range(5) for _ in range(3)]


def test_every_sample_of_a_group_is_its_own() -> None:
    got = generate([rollout_engine()])
    assert len({r.token_ids for r in got.responses}) > 12  # of 15; short ones may coincide


def test_the_same_seed_gives_the_same_samples_and_another_gives_others() -> None:
    first, again, other = (generate([rollout_engine()], seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert [r.token_ids for r in first.responses] != [r.token_ids for r in other.responses]


def test_engines_with_the_same_prompt_draw_differently() -> None:
    twice = [PROMPTS[0], PROMPTS[0]]
    got = generate(
        [rollout_engine(lengths=[6, 6]), rollout_engine(lengths=[6, 6])], n=1, prompts=twice
    )
    assert got.responses[0].token_ids != got.responses[1].token_ids


def test_an_engine_without_prompts_is_not_called() -> None:
    engines = [rollout_engine(), rollout_engine()]
    generate(engines, prompts=PROMPTS[:1])
    assert [e.calls.count("generate") for e in engines] == [1, 0]


def test_finished_samples_are_counted_as_they_come() -> None:
    pool = RolloutPool([rollout_engine()], timeout_s=5.0, sleeps=True)  # type: ignore[list-item]
    seen: list[int] = []
    asyncio.run(pool.generate(PROMPTS[:2], Sampling(max_tokens=4, n=2), on_finished=seen.append))
    assert seen == [1, 2, 3, 4]


@pytest.mark.parametrize(("sleeps", "wanted"), [(True, ["sleep", "wake", "sleep"]), (False, [])])
def test_sleeps_only_if_told_to_and_only_once(sleeps: bool, wanted: list[str]) -> None:
    engine = rollout_engine()

    async def go() -> None:
        pool = RolloutPool([engine], timeout_s=5.0, sleeps=sleeps)  # type: ignore[list-item]
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
