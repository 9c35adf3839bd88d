"""Engines are loaded, woken, put away and replaced when they die."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmrl.cluster.fake import FakeHost
from rmrl.errors import EngineLoadError, EngineLostError, InfrastructureError, StallError
from rmrl.rewards.engines.base import PoolingRequest
from rmrl.rewards.residency import Residency, plan_engines
from rmrl.rewards.spec import RewardSpec
from tests.rewards.parts import engine, fake_host, judge, scalar

ASK = [PoolingRequest((1, 2, 3))]


def only(residency: Residency) -> Any:
    (key,) = residency.order()
    return key


async def use(residency: Residency, key: Any = None) -> list[Any]:
    async with residency.use(only(residency) if key is None else key) as found:
        return await found.call("classify", ASK, timeout_s=5.0)


def residency_of(*specs: RewardSpec, host: FakeHost | None = None, notices: list[str] | None = None) -> Residency:
    return Residency(host or fake_host(), plan_engines(specs), notice=(notices if notices is not None else []).append)


def logs(host: FakeHost) -> list[list[str]]:
    return [process.calls for process in host.spawned]


async def test_on_demand_sleeps_and_wakes():
    host, notices = fake_host(), list[str]()
    residency = residency_of(scalar(), host=host, notices=notices)
    assert residency.states == {"scalar": "unloaded"}
    await use(residency)
    assert residency.states == {"scalar": "asleep"}
    await use(residency)
    assert logs(host) == [["start", "classify", "sleep", "wake", "classify", "sleep"]]
    assert notices == ["loading /models/scalar for scalar"]
    await residency.close()
    assert residency.states == {"scalar": "unloaded"}
    assert host.spawned[0].object is None


async def test_unload_ends_the_process_each_time():
    host = fake_host()
    residency = residency_of(scalar(put_away="unload"), host=host)
    await use(residency)
    assert residency.states == {"scalar": "unloaded"}
    assert host.spawned[0].object is None
    await use(residency)
    assert logs(host) == [["start", "classify"], ["start", "classify"]]


async def test_resident_stays_awake_and_is_loaded_first():
    host = fake_host()
    residency = residency_of(scalar(residency="resident"), scalar("other", engine=engine(path="/b", runner="pooling")), host=host)
    await residency.load_resident()
    assert residency.states == {"scalar": "awake", "other": "unloaded"}
    for key in residency.order():
        await use(residency, key)
    assert residency.states == {"scalar": "awake", "other": "asleep"}
    assert logs(host)[0] == ["start", "classify"]


async def test_what_is_awake_scores_first_then_what_sleeps():
    specs = [
        scalar("cold", engine=engine(path="/a", runner="pooling"), put_away="unload"),
        scalar("asleep", engine=engine(path="/b", runner="pooling")),
        scalar("awake", engine=engine(path="/c", runner="pooling"), residency="resident"),
    ]
    residency = residency_of(*specs)
    for spec in specs:
        assert spec.engine is not None
        await use(residency, spec.engine.key)
    assert [dict(zip(["/a", "/b", "/c"], "abc", strict=True))[key[0]] for key in residency.order()] == ["c", "b", "a"]


def test_ways_to_put_away(tmp_path: Path):
    def way(**changes: Any) -> str:
        (plan,) = plan_engines([scalar(engine=engine(runner="pooling", **changes), put_away="auto")])
        return plan.put_away

    assert way(device="cpu") == "sleep2"
    assert way(device="cuda") == "sleep1"
    assert way(name="hf") == "unload"
    assert plan_engines([scalar(put_away="sleep1")])[0].put_away == "sleep1"


def test_rewards_of_one_engine_share_a_plan(tmp_path: Path):
    specs = [judge(tmp_path, "a"), scalar("s"), judge(tmp_path, "b", residency="resident", load_timeout_s=5.0)]
    plans = plan_engines(specs)
    assert [plan.rewards for plan in plans] == [("a", "b"), ("s",)]
    assert (plans[0].label, plans[0].residency, plans[0].load_timeout_s) == ("a+b", "resident", 900.0)


async def test_one_death_is_forgiven_and_the_requests_are_sent_again():
    host, notices = fake_host(p0=2), list[str]()
    residency = residency_of(scalar(), host=host, notices=notices)
    (output,) = await use(residency)
    assert output.value == pytest.approx(14 / 500 - 1)  # 1 * 1 + 2 * 2 + 3 * 3 = 14
    assert logs(host) == [["start", "classify"], ["start", "classify", "sleep"]]
    assert "engine of scalar died; starting it again" in notices


async def test_a_second_death_is_the_end():
    host = fake_host(p0=2, p1=2)
    residency = residency_of(scalar(), host=host)
    with pytest.raises(EngineLostError, match=r"scalar \(/models/scalar\) died, was started again and died on the same requests"):
        await use(residency)
    assert residency.states == {"scalar": "unloaded"}
    await use(residency)  # the next step may try again
    assert residency.states == {"scalar": "asleep"}


async def test_a_death_in_its_sleep_is_a_new_start():
    host = fake_host(p0=4)  # start, classify, sleep, and then wake
    residency = residency_of(scalar(), host=host)
    await use(residency)
    await use(residency)
    assert logs(host) == [["start", "classify", "sleep", "wake"], ["start", "classify", "sleep"]]


async def test_a_death_while_loading_says_so():
    residency = residency_of(scalar(), host=fake_host(p0=1))
    with pytest.raises(EngineLoadError, match="died while it was loading, most often for want of memory"):
        await use(residency)
    assert residency.states == {"scalar": "unloaded"}


async def test_an_engine_that_cannot_start_is_ended():
    host = fake_host()
    residency = residency_of(scalar(engine=engine(runner="pooling", kwargs={"fail_to_start": "no such file"})), host=host)
    with pytest.raises(EngineLoadError, match="no such file"):
        await use(residency)
    assert host.spawned[0].object is None


@pytest.mark.parametrize("error", [StallError("late"), InfrastructureError("broken"), asyncio.CancelledError()])
async def test_an_engine_lost_or_left_busy_is_unloaded_not_put_to_sleep(error: BaseException):
    host = fake_host()
    residency = residency_of(scalar(), host=host)
    with pytest.raises(type(error)):
        async with residency.use(only(residency)):
            raise error
    assert residency.states == {"scalar": "unloaded"}
    assert logs(host) == [["start"]]


async def test_another_error_leaves_the_engine_asleep():
    residency = residency_of(scalar())
    with pytest.raises(ValueError, match="user"):
        async with residency.use(only(residency)):
            raise ValueError("user")
    assert residency.states == {"scalar": "asleep"}


async def test_one_engine_is_used_by_one_at_a_time():
    host = fake_host()
    residency = residency_of(scalar(), host=host)
    await asyncio.gather(use(residency), use(residency))
    assert len(host.spawned) == 1
    assert logs(host) == [["start", "classify", "sleep", "wake", "classify", "sleep"]]


async def test_times_are_counted_and_taken_once():
    residency = residency_of(scalar())
    await use(residency)
    await use(residency)
    metrics = residency.take_metrics()
    assert {key: metrics[key] for key in metrics if not key.endswith("_s")} == {
        "engine/scalar/loads": 1.0,
        "engine/scalar/wakes": 1.0,
        "engine/scalar/sleeps": 2.0,
    }
    assert all(metrics[f"engine/scalar/{what}_s"] >= 0 for what in ("load", "wake", "sleep"))
    assert residency.take_metrics() == {}
