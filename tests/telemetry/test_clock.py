"""The step clock, driven by a hand-set time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from rmrl.telemetry.clock import Durations, StepClock
from tests.patience import PATIENCE_S


class Watch:
    """A time that moves only when told."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_stages_in_a_row_and_the_time_in_none(watch: Watch) -> None:
    clock = StepClock(watch)
    with clock("generate"):
        watch.at += 2
    watch.at += 1
    for _ in range(2):
        with clock("update"):
            watch.at += 3
    expected = {
        "time/generate_s": 2,
        "time/update_s": 6,
        "time/other_s": 1,
        "time/step_s": 9,
        "perf/tokens_per_s": 20,
    }
    assert clock.metrics(tokens=180) == expected


def test_a_nested_stage_counts_in_both_and_itself_only_once(watch: Watch) -> None:
    clock = StepClock(watch)
    with clock("update"):
        watch.at += 1
        with clock("optimizer"), clock("update"):
            watch.at += 4
    assert clock.metrics() == {
        "time/update_s": 5,
        "time/optimizer_s": 4,
        "time/other_s": 0,
        "time/step_s": 5,
    }


def test_a_stage_that_raises_is_counted(watch: Watch) -> None:
    clock = StepClock(watch)
    with contextlib.suppress(ValueError), clock("score"):
        watch.at += 7
        raise ValueError("judge")
    watch.at += 1
    assert clock.metrics()["time/score_s"] == 7


def test_overlapping_tasks_count_wall_clock_once(watch: Watch) -> None:
    clock = StepClock(watch)

    async def judge(ready: asyncio.Event, go_on: asyncio.Event) -> None:
        with clock("score"):
            ready.set()
            await go_on.wait()

    async def run() -> None:
        first, second = asyncio.Event(), asyncio.Event()
        go_on = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(judge(first, go_on))
            await first.wait()
            watch.at += 2
            group.create_task(judge(second, go_on))
            await second.wait()
            watch.at += 3
            go_on.set()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert clock.metrics()["time/score_s"] == 5  # not 2 + 3 + 3


def test_restart_forgets_all_but_what_is_still_open(watch: Watch) -> None:
    clock = StepClock(watch)
    with clock("generate"):
        watch.at += 5
    with clock("prefetch"):
        watch.at += 5
        clock.restart()
        watch.at += 2
    assert clock.metrics() == {"time/prefetch_s": 2, "time/other_s": 0, "time/step_s": 2}


def test_durations_add_up_until_they_are_taken() -> None:
    seconds = iter([0.0, 2.0, 10.0, 13.0, 20.0, 21.0])
    durations = Durations(now=lambda: next(seconds))
    with durations("sleep"):
        pass
    with contextlib.suppress(ValueError), durations("sleep"):
        raise ValueError
    with durations("wake"):
        pass
    assert durations.take() == {"sleep": 5.0, "wake": 1.0}
    assert durations.take() == {}
