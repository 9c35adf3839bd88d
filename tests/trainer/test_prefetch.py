"""Batches arrive in order, sampled from weights of the allowed age, and errors reach who waits for
the batch."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

from rmrl.trainer.prefetch import Published, batches

Sample = Callable[[int], Awaitable[int]]


async def versions_used(
    *,
    ahead: int,
    steps: int,
    sampling_s: float = 0.0,
    training_s: float = 0.0,
    until_the_next_began: bool = False,
) -> list[tuple[int, int]]:
    """(step, version of the engines when it was sampled) as training would see them.

    `until_the_next_began`: a step trains until the next one is being sampled.
    """
    published, used = Published(0), []
    began = [asyncio.Event() for _ in range(steps)]

    async def sample(step: int) -> tuple[int, int]:
        began[step].set()
        version = published.version
        await asyncio.sleep(sampling_s)
        return step, version

    async with aclosing(batches(sample, range(steps), ahead=ahead, published=published)) as ready:
        async for step, version in ready:
            used.append((step, version))
            await asyncio.sleep(training_s)
            if until_the_next_began:
                await asyncio.wait_for(began[min(step + 1, steps - 1)].wait(), 60)
            published.set(step + 1)
    return used


def test_on_policy_batches_are_sampled_from_the_newest_weights() -> None:
    assert asyncio.run(versions_used(ahead=0, steps=4)) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_one_step_off_samples_from_the_weights_of_the_step_before() -> None:
    """Training is slow, so every batch is sampled as early as it may be: version s - 1 for step
    s."""
    assert asyncio.run(versions_used(ahead=1, steps=4, until_the_next_began=True)) == [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 2),
    ]


@pytest.mark.parametrize("ahead", [1, 2, 3])
@pytest.mark.parametrize(("sampling_s", "training_s"), [(0.004, 0.0), (0.0, 0.004), (0.002, 0.002)])
def test_no_batch_is_older_than_allowed_and_none_is_lost(
    ahead: int, sampling_s: float, training_s: float
) -> None:
    used = asyncio.run(
        versions_used(ahead=ahead, steps=8, sampling_s=sampling_s, training_s=training_s)
    )
    assert [step for step, _ in used] == list(range(8))
    assert all(0 <= step - version <= ahead for step, version in used)


def test_the_next_batch_is_sampled_while_this_one_trains() -> None:
    async def overlapped() -> list[str]:
        log: list[str] = []
        published, second = Published(0), asyncio.Event()

        async def sample(step: int) -> int:
            log.append(f"sample {step}")
            if step == 1:
                second.set()
            return step

        async with aclosing(batches(sample, range(2), ahead=1, published=published)) as ready:
            async for step in ready:
                if step == 0:
                    await asyncio.wait_for(
                        second.wait(), 60
                    )  # would time out if sampling waited for the end of training
                log.append(f"trained {step}")
                published.set(step + 1)
        return log

    assert asyncio.run(overlapped()) == ["sample 0", "sample 1", "trained 0", "trained 1"]


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_an_error_of_sampling_is_raised_where_the_batch_is_asked_for(ahead: int) -> None:
    got: list[int] = []

    async def fails() -> list[int]:
        published = Published(0)

        async def sample(step: int) -> int:
            if step == 2:
                raise ValueError("no responses")
            return step

        async for step in batches(sample, range(5), ahead=ahead, published=published):
            got.append(step)
            published.set(step + 1)
        return got

    with pytest.raises(ValueError, match="no responses"):
        asyncio.run(fails())
    assert got == [0, 1]


def test_leaving_early_cancels_what_is_being_sampled() -> None:
    async def leaves() -> bool:
        cancelled = False
        second = asyncio.Event()

        async def sample(step: int) -> int:
            nonlocal cancelled
            if step:
                second.set()
            try:
                await asyncio.sleep(60 if step else 0)
            except asyncio.CancelledError:
                cancelled = True
                raise
            return step

        async with aclosing(batches(sample, range(5), ahead=1, published=Published(0))) as ready:
            async for _ in ready:
                await asyncio.wait_for(second.wait(), 60)
                break
        return cancelled

    assert asyncio.run(leaves())


def test_an_error_that_nobody_asks_for_any_more_is_silent() -> None:
    said: list[dict[str, object]] = []

    async def leaves() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        second = asyncio.Event()

        async def sample(step: int) -> int:
            if step:
                second.set()
                raise ValueError("no responses")
            return step

        async with aclosing(batches(sample, range(5), ahead=1, published=Published(0))) as ready:
            async for _ in ready:
                await asyncio.wait_for(second.wait(), 60)
                await asyncio.sleep(0.01)
                break
        gc.collect()

    asyncio.run(leaves())
    assert said == []
