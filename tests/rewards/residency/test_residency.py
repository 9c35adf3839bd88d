"""Engines are loaded, woken, put away for one another, and replaced when they die; swaps are
counted by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from rmrl.errors import (
    ConfigError,
    EngineLoadError,
    EngineLostError,
    InfrastructureError,
    MemoryPlanError,
    StallError,
)
from rmrl.inference.reward_engine_base import EngineSpec, PoolingRequest
from rmrl.inference.vllm import compat
from rmrl.rewards.residency import (
    Budget,
    EnginePlan,
    Residency,
    Room,
    assign_devices,
    placed,
    plan_engines,
    sized,
    turns,
    with_replicas,
)
from rmrl.rewards.specs.spec import RewardSpec
from tests.patience import PATIENCE_S, expires
from tests.support import fakes
from tests.support.fake_processes import FakeHost, FakeProcess

ASK = [PoolingRequest((1, 2, 3))]
GIB, MIB = 2**30, 2**20

SPEC = EngineSpec(
    path="/models/scalar", runner="pooling", name=fakes.REWARD_ENGINE, dtype="bfloat16", max_model_len=None, max_num_seqs=8, max_num_batched_tokens=512,
    tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=100 * MIB, device="cpu", threads=1,
)  # fmt: skip


def scalar(
    name: str = "scalar",
    *,
    roles: dict[str, EngineSpec] | None = None,
    engine: EngineSpec = SPEC,
    **changes: Any,
) -> RewardSpec:
    return RewardSpec(
        name=name, kind="bradley_terry", weight=1.0, engines=roles or {"main": engine}, **changes
    )


def engine(path: str = "/models/scalar", **changes: Any) -> EngineSpec:
    return dataclasses.replace(SPEC, path=path, **changes)


def residency_of(
    *specs: RewardSpec, host: FakeHost | None = None, room: Room | None = None
) -> Residency:
    host = host or FakeHost()
    budget = None if room is None else Budget({"": room})
    return Residency(lambda plan: host, sized(plan_engines(specs)), budget=budget)


async def use(residency: Residency, key: Any = None) -> list[Any]:
    async with residency.use(residency.order()[0] if key is None else key) as found:
        return await found.call("classify", ASK, timeout_s=PATIENCE_S)


def logs(host: FakeHost) -> list[list[str]]:
    return [process.calls for process in host.spawned]


def on_demand(name: str = "scalar", **changes: Any) -> RewardSpec:
    return scalar(name, residency="on_demand", **changes)


# --- one engine


async def test_on_demand_sleeps_and_wakes(caplog: pytest.LogCaptureFixture) -> None:
    host = FakeHost()
    residency = residency_of(on_demand(), host=host)
    assert residency.states == {"scalar": "unloaded"}
    await use(residency)
    assert residency.states == {"scalar": "asleep"}
    await use(residency)
    assert logs(host) == [["start", "classify", "sleep", "wake", "classify", "sleep"]]
    assert caplog.messages == ["loading /models/scalar for scalar"]
    await residency.close()
    assert residency.states == {"scalar": "unloaded"}
    assert host.living == []


async def test_unload_ends_the_process_each_time() -> None:
    host = FakeHost()
    residency = residency_of(on_demand(put_away="unload"), host=host)
    await use(residency)
    assert residency.states == {"scalar": "unloaded"}
    assert host.living == []
    await use(residency)
    assert logs(host) == [["start", "classify"], ["start", "classify"]]


async def test_auto_stays_while_nobody_needs_its_memory() -> None:
    host = FakeHost()
    residency = residency_of(scalar(), host=host)
    await use(residency)
    await residency.settle()  # no budget: unlimited
    await use(residency)
    assert logs(host) == [["start", "classify", "classify"]]
    assert residency.states == {"scalar": "awake"}


async def test_resident_stays_awake_and_is_loaded_first() -> None:
    host = FakeHost()
    residency = residency_of(
        scalar(residency="resident"), on_demand("other", engine=engine("/b")), host=host
    )
    await residency.load_resident()
    assert residency.states == {"scalar": "awake", "other": "unloaded"}
    for key in residency.order():
        await use(residency, key)
    assert residency.states == {"scalar": "awake", "other": "asleep"}
    assert logs(host)[0] == ["start", "classify"]


async def test_one_death_is_forgiven_and_the_requests_are_sent_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = FakeHost({0: 2})  # the first process dies on its second call, "start" is the first
    residency = residency_of(on_demand(), host=host)
    (output,) = await use(residency)
    assert output.value == pytest.approx(14 / 500 - 1)  # 1 * 1 + 2 * 2 + 3 * 3 = 14
    assert logs(host) == [["start", "classify"], ["start", "classify", "sleep"]]
    assert "engine of scalar died; starting it again" in caplog.messages


async def test_a_second_death_is_the_end() -> None:
    residency = residency_of(scalar(), host=FakeHost({0: 2, 1: 2}))
    words = r"scalar \(/models/scalar\) died, was started again and died on the same requests"
    with pytest.raises(EngineLostError, match=words):
        await use(residency)
    assert residency.states == {"scalar": "unloaded"}
    await use(residency)  # the next step may try again
    assert residency.states == {"scalar": "awake"}


async def test_a_death_in_its_sleep_is_a_new_start() -> None:
    host = FakeHost({0: 4})  # start, classify, sleep, and then wake
    residency = residency_of(on_demand(), host=host)
    await use(residency)
    await use(residency)
    assert logs(host) == [["start", "classify", "sleep", "wake"], ["start", "classify", "sleep"]]


@pytest.mark.parametrize(
    ("settings", "deaths", "words"),
    [
        ({}, {0: 1}, "died while it was loading, most often for want of memory"),
        ({"fail_to_start": "no such file"}, {}, "no such file"),
    ],
)
async def test_an_engine_that_cannot_start_is_ended(
    settings: dict[str, Any], deaths: dict[int, int], words: str
) -> None:
    host = FakeHost(deaths)
    residency = residency_of(scalar(engine=engine(kwargs=settings)), host=host)
    with pytest.raises(EngineLoadError, match=words):
        await use(residency)
    assert residency.states == {"scalar": "unloaded"}
    assert host.living == []


@pytest.mark.parametrize(
    "error", [StallError("late"), InfrastructureError("broken"), asyncio.CancelledError()]
)
async def test_an_engine_lost_or_left_busy_is_unloaded_not_put_to_sleep(
    error: BaseException,
) -> None:
    host = FakeHost()
    residency = residency_of(on_demand(), host=host)
    with pytest.raises(type(error)):
        async with residency.use(residency.order()[0]):
            raise error
    assert residency.states == {"scalar": "unloaded"}
    assert logs(host) == [["start"]]


async def test_another_error_leaves_the_engine_asleep() -> None:
    residency = residency_of(on_demand())
    with pytest.raises(ValueError, match="user"):
        async with residency.use(residency.order()[0]):
            raise ValueError("user")
    assert residency.states == {"scalar": "asleep"}


async def test_one_engine_is_used_by_one_at_a_time() -> None:
    host = FakeHost()
    residency = residency_of(on_demand(), host=host)
    await asyncio.gather(use(residency), use(residency))
    assert logs(host) == [["start", "classify", "sleep", "wake", "classify", "sleep"]]


async def test_times_and_bytes_are_counted_and_taken_once() -> None:
    residency = residency_of(on_demand())
    await use(residency)
    await use(residency)
    metrics = residency.take_metrics()
    assert {key: metrics[key] for key in metrics if not key.endswith("_s")} == {
        "engine/scalar/loads": 1.0,
        "engine/scalar/wakes": 1.0,
        "engine/scalar/sleeps": 2.0,
        "engine/scalar/bytes": 1.0 * GIB,  # a fake engine says 1 GiB awake and nothing at level 2
        "engine/scalar/freed_bytes": 2.0 * GIB,
    }
    assert all(metrics[f"engine/scalar/{what}_s"] >= 0 for what in ("load", "wake", "sleep"))
    assert residency.take_metrics() == {}


async def test_what_unloading_frees_is_counted() -> None:
    residency = residency_of(on_demand(put_away="unload"))
    await use(residency)
    metrics = residency.take_metrics()
    assert metrics["engine/scalar/unloads"] == 1.0
    assert metrics["engine/scalar/freed_bytes"] == 1.0 * GIB
    assert "engine/scalar/sleeps" not in metrics


# --- several engines in little memory


def three(**changes: Any) -> list[RewardSpec]:
    """Engines a, b, c of 10 bytes awake, 1 asleep."""
    return [
        scalar(n, engine=engine(f"/{n}", kwargs={"awake_bytes": 10, "away_bytes": 1}), **changes)
        for n in "abc"
    ]


async def one_step(residency: Residency) -> str:
    """All engines once, in the residency's order; the order they had."""
    used = ""
    left = list(residency.order())
    while left:
        key = residency.order(left)[0]  # as the broker does: asked anew for each turn
        left.remove(key)
        await use(residency, key)
        used += key[0][1]  # type: ignore[index]
    await residency.settle()
    return used


def total(residency: Residency, name: str) -> int:
    metrics = residency.take_metrics()
    return int(sum(metrics[key] for key in metrics if key.endswith(f"/{name}")))


async def test_three_engines_with_room_for_two_swap_one_a_step() -> None:
    host = FakeHost()
    residency = residency_of(*three(put_away="unload"), host=host, room=Room(20, 20))
    assert await one_step(residency) == "abc"  # three loads; c puts a away
    assert residency.states == {"a": "unloaded", "b": "awake", "c": "awake"}
    assert total(residency, "loads") == 3
    assert await one_step(residency) == "cba"  # the latest first; a puts c away, used longest ago
    assert residency.states == {"a": "awake", "b": "awake", "c": "unloaded"}
    assert total(residency, "loads") == 1
    assert await one_step(residency) == "abc"  # zig, zag
    assert (
        total(residency, "loads") == 1
    )  # 5 loads in 3 steps; the fixed order a, b, c would make 9
    assert len(host.spawned) == 5


async def test_evictions_are_told_apart_from_settling() -> None:
    residency = residency_of(*three(), room=Room(22, 12))
    await one_step(residency)
    metrics = residency.take_metrics()
    # a: put away for c (1 + 10 + 10 = 21 <= 22). Then 21 > 12: b sleeps, and 1 + 1 + 10 = 12 fits,
    # so c stays.
    assert residency.states == {"a": "asleep", "b": "asleep", "c": "awake"}
    assert metrics["engine/a/evictions"] == 1.0
    assert not any(key in metrics for key in ("engine/b/evictions", "engine/c/evictions"))
    assert metrics["engine/b/sleeps"] == 1.0


async def test_a_model_that_fits_stays() -> None:
    host = FakeHost()
    residency = residency_of(*three(), host=host, room=Room(30, 30))
    for _ in range(3):
        await one_step(residency)
    assert logs(host) == [["start", "classify", "classify", "classify"]] * 3


async def test_settle_keeps_residents_and_unloads_sleepers_when_sleep_is_not_enough() -> None:
    specs = [
        *three(),
        scalar("r", engine=engine("/r", kwargs={"awake_bytes": 5}), residency="resident"),
    ]
    residency = residency_of(*specs, room=Room(100, 7))
    await one_step(residency)
    # 5 for r leaves 2: a, b and c sleep at 1 each, one too many; a was used longest ago
    assert residency.states == {"a": "unloaded", "b": "asleep", "c": "asleep", "r": "awake"}


async def test_rest_puts_all_away_but_residents_and_pools_however_much_room_there_is() -> None:
    specs = [
        *three(),
        scalar("r", engine=engine("/r"), residency="resident"),
        scalar("p", engine=engine("/p", pool="judges")),
    ]
    residency = residency_of(*specs)
    await residency.rest()  # nothing is loaded yet
    for key in residency.order():
        await use(residency, key)
    await residency.rest()
    away = {"a": "asleep", "b": "asleep", "c": "asleep"}
    assert residency.states == {**away, "r": "awake", "p": "awake"}
    await residency.rest()
    assert residency.states == {**away, "r": "awake", "p": "awake"}


async def test_what_is_awake_scores_first_then_what_sleeps() -> None:
    specs = [
        scalar("cold", engine=engine("/a"), residency="on_demand", put_away="unload"),
        scalar("asleep", engine=engine("/b"), residency="on_demand"),
        scalar("awake", engine=engine("/c")),
    ]
    residency = residency_of(*specs)
    keys = [next(iter(spec.engines.values())).key for spec in specs]
    for key in keys:
        await use(residency, key)
    assert residency.order() == [keys[2], keys[1], keys[0]]
    assert residency.order(keys[:2]) == [keys[1], keys[0]]


async def test_an_engine_that_can_never_fit_is_refused_before_it_is_loaded() -> None:
    host = FakeHost()
    residency = residency_of(*three(), host=host, room=Room(9, 9))
    words = "the engine of a needs 0.00 GiB of 0.00 GiB, held by others: nothing"
    with pytest.raises(MemoryPlanError, match=words):
        await use(residency)
    assert host.spawned == []


async def test_residents_in_the_way_are_named() -> None:
    sizes = {"awake_bytes": GIB}
    resident = scalar("r", engine=engine("/r", kwargs=sizes), residency="resident")
    other = scalar("s", engine=engine("/s", kwargs=sizes))
    residency = residency_of(resident, other, room=Room(GIB * 3 // 2, GIB))
    await residency.load_resident()
    words = (
        r"s needs 1.00 GiB of 1.50 GiB, held by others: r 1.00 GiB; .* fewer engines be resident"
    )
    with pytest.raises(MemoryPlanError, match=words):
        await use(residency, residency.order()[1])


async def test_who_needs_the_memory_of_an_engine_in_use_waits_for_it() -> None:
    residency = residency_of(*three(put_away="unload"), room=Room(10, 10))
    first, second, _ = residency.order()
    async with residency.use(first):
        waiting = asyncio.create_task(use(residency, second))
        for _ in range(20):
            await asyncio.sleep(0)
        assert residency.states["b"] == "unloaded"
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert residency.states == {"a": "unloaded", "b": "awake", "c": "unloaded"}


async def test_waiting_has_a_deadline() -> None:
    residency = residency_of(*three(load_timeout_s=expires(0.05)), room=Room(10, 10))
    first, second, _ = residency.order()
    words = "held by others: a 0.00 GiB; none of it became free within 0.05 s"
    async with residency.use(first):
        with pytest.raises(StallError, match=words):
            await use(residency, second)


async def test_many_users_at_once_never_hold_more_than_the_budget() -> None:
    host = FakeHost()
    residency = residency_of(*three(put_away="unload"), host=host, room=Room(20, 20))
    living = []

    async def user(key: Any) -> None:
        async with residency.use(key) as found:
            living.append(len(host.living))
            await found.call("classify", ASK, timeout_s=PATIENCE_S)
            await asyncio.sleep(0)

    await asyncio.wait_for(
        asyncio.gather(*(user(key) for _ in range(10) for key in residency.order())), PATIENCE_S
    )
    assert max(living) == 2
    assert len(living) == 30


class SlowHost(FakeHost):
    """Takes a moment to start a process."""

    async def spawn(self, factory: str, settings: Mapping[str, Any], *, name: str) -> FakeProcess:
        await asyncio.sleep(0.01)
        return await super().spawn(factory, settings, name=name)


async def test_an_engine_that_is_being_loaded_counts_for_the_budget() -> None:
    host = SlowHost()
    residency = residency_of(*three(put_away="unload"), host=host, room=Room(10, 10))
    living = []

    async def user(key: Any) -> None:
        async with residency.use(key):
            living.append(len(host.living))

    await asyncio.wait_for(asyncio.gather(*map(user, residency.order())), PATIENCE_S)
    assert living == [1, 1, 1]


async def test_pools_have_budgets_of_their_own() -> None:
    host, specs = FakeHost(), three()
    away = scalar(
        "p", engine=engine("/p", pool="judges", kwargs={"awake_bytes": 10, "away_bytes": 1})
    )
    plans = sized(plan_engines([*specs, away]))
    residency = Residency(lambda plan: host, plans, budget=Budget({"": Room(12, 3)}))
    for plan in plans:
        await use(residency, plan.key)
    await residency.settle()
    assert residency.states == {"a": "asleep", "b": "asleep", "c": "asleep", "p": "awake"}
    assert len({residency.turn_of(plan.key) for plan in plans}) == 2  # a, b, c take turns


# --- plans


def test_ways_to_put_away() -> None:
    def way(asked: str = "auto", **changes: Any) -> str:
        (plan,) = plan_engines([scalar(engine=engine(**changes), put_away=asked)])
        return plan.put_away

    assert way(device="cpu") == "sleep2"
    assert way(device="cuda") == "sleep1"
    assert way(name="hf") == "unload"
    assert way(name="sentence_transformers", device="cuda") == "unload"
    assert (way(name="sglang", device="cuda"), way(name="sglang")) == ("sleep1", "unload")
    assert way("sleep1") == "sleep1"


def test_rewards_of_one_engine_share_a_plan_over_roles() -> None:
    writer = engine("/models/writer", runner="generate")
    specs = [
        scalar("a", residency="on_demand"),
        scalar("crit", roles={"main": writer, "scorer": SPEC}, load_timeout_s=50.0),
        scalar("b", residency="resident", engine=writer),
    ]
    plans = plan_engines(specs)
    assert [(plan.label, plan.residency, plan.load_timeout_s) for plan in plans] == [
        ("a+crit/scorer", "auto", 900.0),  # auto keeps it longer than on_demand
        ("crit+b", "resident", 900.0),
    ]


def test_pools_and_replicas_make_engines_of_their_own() -> None:
    specs = [
        scalar("a"),
        scalar("b", engine=engine(pool="judges")),
        scalar("c", engine=engine(replicas=2)),
    ]
    assert [plan.label for plan in plan_engines(specs)] == ["a", "b", "c"]


def test_sizes_on_cpu(tiny_llama: Path) -> None:
    # embeddings 1024 x 128, tied; two layers of q, o 128 x 128, k, v 64 x 128, three 128 x 256, two
    # norms; the last norm; 2 bytes
    weights = 2 * (1024 * 128 + 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 128 * 256 + 2 * 128) + 128)

    def size(put_away: str = "auto", **changes: Any) -> tuple[int, int]:
        spec = engine(str(tiny_llama), **{"name": "vllm", "runner": "generate", **changes})
        (plan,) = sized(plan_engines([scalar(engine=spec, put_away=put_away)]))
        return plan.awake_bytes, plan.away_bytes

    assert size() == (2 * weights + 1000 * MIB, 900 * MIB)
    assert size("sleep1") == (2 * weights + 1000 * MIB, 2 * weights + 900 * MIB)
    assert size("unload") == (2 * weights + 1000 * MIB, 0)
    assert size(replicas=2) == (4 * weights + 2000 * MIB, 1800 * MIB)
    assert size(tensor_parallel_size=2) == (2 * weights + 2000 * MIB, 1800 * MIB)
    assert size(name="hf") == (weights + (900 + 512) * MIB, 0)


def test_sizes_on_cuda(tiny_llama: Path) -> None:
    spec = engine(str(tiny_llama), name="vllm", runner="generate", device="cuda", replicas=2)
    (plan,) = sized(plan_engines([scalar(engine=spec)]), device_bytes=80 * GIB)
    # half of it by gpu_memory_utilization
    assert (plan.awake_bytes, plan.away_bytes) == (40 * GIB, 600 * MIB)
    assert 1 * MIB < plan.host_bytes < 4 * MIB  # two replicas' weights sleep in host memory
    open_number = dataclasses.replace(spec, replicas=None)
    (filled,) = sized(with_replicas(plan_engines([scalar(engine=open_number)]), {"": 8}))
    assert filled.host_bytes == 4 * plan.host_bytes  # eight replicas
    unloading = plan_engines([scalar(engine=spec, put_away="unload")])
    (unloaded,) = sized(unloading, device_bytes=80 * GIB)
    assert (unloaded.away_bytes, unloaded.host_bytes) == (0, 0)


async def test_the_engine_starts_with_the_share_that_the_plan_chose() -> None:
    """The key is the reward's: rewards find their engine whatever its share."""
    host = FakeHost()
    reward = scalar(engine=engine(gpu_memory_utilization=None))
    plans = [dataclasses.replace(plan, gpu_share=0.4) for plan in plan_engines([reward])]
    residency = Residency(lambda plan: host, plans)
    await use(residency, reward.engines["main"].key)
    (process,) = host.spawned
    assert process.object.spec == engine(gpu_memory_utilization=0.4)
    await residency.close()


@pytest.mark.parametrize(
    ("version", "changes", "tokens"),
    [
        ("0.31.0", {}, 4096),  # the first runner: all of a prompt
        ("0.32.0", {}, 1024),  # the second one: a chunk
        ("0.32.0", {"batch_invariant": True}, 4096),
        ("0.32.0", {"max_model_len": 512}, 512),
    ],
)
def test_the_logits_of_a_teacher_are_planned_beyond_the_share_of_its_engine(
    tiny_llama: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    changes: dict[str, Any],
    tokens: int,
) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    monkeypatch.setattr(compat, "installed_version", lambda: Version(version))
    folder = tmp_path / "teacher"
    shutil.copytree(tiny_llama, folder)
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"vocab_size": 152_064, "max_position_embeddings": 32_768}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    spec = engine(str(folder), name="vllm", runner="generate", device="cuda", **changes)
    judge, teacher = (
        sized(
            plan_engines([dataclasses.replace(scalar(engine=spec), kind=kind)]),
            device_bytes=80 * GIB,
        )[0]
        for kind in ("generative", "teacher")
    )
    assert teacher.awake_bytes - judge.awake_bytes == tokens * 152_064 * 10


def test_weights_in_bin_files_count_as_stored(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"holds no \*\.safetensors"):
        sized(plan_engines([scalar(engine=engine(str(tmp_path), name="vllm"))]))
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(1000))
    (plan,) = sized(plan_engines([scalar(engine=engine(str(tmp_path), name="vllm"))]))
    assert plan.awake_bytes == 2000 + 900 * MIB  # an encoder has no KV cache


# --- devices


def gpu_plans(
    *sizes: tuple[str, int, int], replicas: int | None = 1, pool: str = ""
) -> list[EnginePlan]:
    """(name, tensor_parallel_size, bytes on each device)."""
    plans: list[EnginePlan] = []
    for name, width, count in sizes:
        spec = engine(
            f"/{name}", device="cuda", tensor_parallel_size=width, replicas=replicas, pool=pool
        )
        (plan,) = plan_engines([scalar(name, engine=spec)])
        plans.append(dataclasses.replace(plan, awake_bytes=count))
    return plans


def on_devices(plans: list[EnginePlan], *devices: tuple[int, ...]) -> list[EnginePlan]:
    pairs = zip(plans, devices, strict=True)
    return [dataclasses.replace(plan, devices=numbers) for plan, numbers in pairs]


def by_name(plans: list[EnginePlan], found: dict[Any, int]) -> dict[str, int]:
    return {plan.label: found[plan.key] for plan in plans}


def test_the_largest_come_first_onto_the_least_loaded_devices() -> None:
    plans = gpu_plans(("small", 1, 1), ("wide", 2, 10), ("big", 1, 8), ("mid", 1, 5))
    # wide: 2 x 10 on 0, 1; big on 2; mid on 3; small beside mid (5 is the smallest load)
    assert by_name(plans, assign_devices(plans, 4)) == {"wide": 0, "big": 2, "mid": 3, "small": 3}


def test_engines_of_unknown_size_are_spread() -> None:
    plans = gpu_plans(("a", 1, 0), ("b", 1, 0), ("c", 1, 0))
    assert by_name(plans, assign_devices(plans, 2)) == {"a": 0, "b": 1, "c": 0}


def test_no_replica_spans_two_machines() -> None:
    plans = gpu_plans(("x", 1, 9), ("wide", 2, 1))
    # x takes device 0; wide could start at 0, 2 or 4 of 2 machines of 3: 2 would span devices 2 and
    # 3
    assert by_name(plans, assign_devices(plans, 6, per_node=3)) == {"x": 0, "wide": 4}


def test_replicas_lie_in_a_row_and_each_sees_its_own_devices() -> None:
    (plan,) = placed(gpu_plans(("r", 2, 1), replicas=2, pool="judges"), {"": 1, "judges": 4})
    assert plan.devices == (0, 1, 2, 3)
    assert [plan.of_replica(i).devices for i in range(2)] == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("width", "devices", "per_node", "expected"),
    [
        (2, 8, None, 4),  # 8 devices, tensor parallel over 2
        (1, 8, None, 8),
        (3, 8, None, 2),  # 2 devices are left over
        (8, 8, None, 1),
        (16, 8, None, 1),  # does not fit, which placing reports
        (2, 16, 8, 8),  # two machines of 8
        (2, 6, 3, 1),  # devices 2 and 3 lie on two machines, so the row ends there
    ],
)
def test_without_a_number_replicas_fill_their_place(
    width: int, devices: int, per_node: int | None, expected: int
) -> None:
    machines = None if per_node is None else {"": per_node}
    plans = gpu_plans(("judge", width, 1), replicas=None)
    (plan,) = with_replicas(plans, {"": devices}, per_node=machines)
    assert plan.replicas == expected
    assert plan.key == plans[0].key  # the reward that needs it still finds it
    if width <= devices:
        (plan,) = placed([plan], {"": devices}, per_node=machines)
        assert plan.devices == tuple(range(expected * width))


def test_a_number_of_replicas_stays_and_pools_fill_by_themselves() -> None:
    plans = [
        *gpu_plans(("one", 1, 1), replicas=1),
        *gpu_plans(("pooled", 2, 1), replicas=None, pool="judges"),
        *gpu_plans(("lost", 1, 1), replicas=None, pool="nowhere"),
    ]
    filled = with_replicas(plans, {"": 8, "judges": 4})
    assert [plan.replicas for plan in filled] == [1, 2, 1]
    server = engine("/s", device="cuda", replicas=None, kwargs={"base_url": "http://host:1"})
    for single in (engine(replicas=None), server):  # on a CPU, and on a server
        (plan,) = with_replicas(plan_engines([scalar(engine=single)]), {"": 8})
        assert plan.replicas == 1


def test_resident_engines_of_one_place_keep_one_replica_each() -> None:
    """Eight of each would lie on all devices, and neither would ever make room."""
    on_demand = gpu_plans(("first", 1, 1), ("second", 1, 1), replicas=None)
    two = [dataclasses.replace(plan, residency="resident") for plan in on_demand]
    assert [plan.replicas for plan in with_replicas(two, {"": 8})] == [1, 1]
    assert [plan.replicas for plan in with_replicas(two[:1], {"": 8})] == [8]


def test_too_few_devices_and_unknown_pools_are_reported_together() -> None:
    plans = [*gpu_plans(("wide", 4, 1)), *gpu_plans(("lost", 1, 1), pool="nowhere")]
    with pytest.raises(ConfigError) as caught:
        placed(plans, {"": 2, "judges": 1})
    first, second = sorted(caught.value.problems)
    assert "lost names pool 'nowhere', which trainer.resource_pools does not have" in first
    assert "(known: judges)" in first
    assert "tensor_parallel_size 4 x replicas 1 = 4 devices and the policy has 2" in second
    assert "raise trainer.n_gpus_per_node" in second


def test_on_cpu_every_engine_has_the_machine() -> None:
    plans = placed(
        plan_engines([scalar(engine=engine(tensor_parallel_size=2, replicas=3))]), {"": 1}
    )
    assert plans[0].devices == (0,)
    assert plans[0].of_replica(2).devices == (0,)


def test_turns_link_engines_through_shared_devices() -> None:
    plans = gpu_plans(("a", 1, 1), ("b", 1, 1), ("wide", 2, 1), ("alone", 1, 1))
    plans = on_devices(plans, (0,), (1,), (0, 1), (2,))
    places = [turns(plans)[plan.key] for plan in plans]
    assert places == [("", 0), ("", 0), ("", 0), ("", 2)]  # a and b share nothing but wide
    chain = on_devices(plans[:3], (0, 1), (1, 2), (0,))
    assert set(turns(chain).values()) == {("", 0)}


async def test_disjoint_devices_neither_wait_nor_evict_one_another() -> None:
    plans = gpu_plans(("a", 1, 10), ("b", 1, 10))
    plans = placed(plans, {"": 2})
    residency = Residency(lambda plan: FakeHost(), plans, budget=Budget({"": Room(10, 10)}))
    a, b = (plan.key for plan in plans)
    async with residency.use(a), residency.use(b):
        assert residency.states == {"a": "awake", "b": "awake"}
    await residency.settle()
    assert residency.states == {"a": "awake", "b": "awake"}


# --- replicas and read-ahead through the residency


async def test_replicas_are_one_engine_of_several_processes() -> None:
    host = FakeHost()
    devices: list[tuple[int, ...]] = []
    (plan,) = placed(gpu_plans(("r", 1, 10), replicas=2), {"": 2})

    def host_of(part: EnginePlan) -> FakeHost:
        devices.append(part.devices)
        return host

    residency = Residency(host_of, [plan])
    requests = [PoolingRequest((n,)) for n in range(4)]
    async with residency.use(plan.key) as replicas:
        outputs = await replicas.call("classify", requests, timeout_s=PATIENCE_S)
    assert [round((o.value + 1) * 500) for o in outputs] == [0, 1, 2, 3]
    assert devices == [(0,), (1,)]
    assert logs(host) == [["start", "classify"]] * 2
    assert residency.take_metrics()["engine/r/bytes"] == 2.0 * GIB


async def test_a_dead_replica_restarts_the_engine_once() -> None:
    host = FakeHost({1: 2})
    (plan,) = placed(gpu_plans(("r", 1, 10), replicas=2), {"": 2})
    residency = Residency(lambda part: host, [plan])
    async with residency.use(plan.key) as found:
        assert len(await found.call("classify", ASK * 4, timeout_s=PATIENCE_S)) == 4
    assert [process.object is not None for process in host.spawned] == [False, False, True, True]


async def test_reading_ahead_is_measured_and_only_for_what_must_be_read(tiny_llama: Path) -> None:
    residency = residency_of(
        scalar(engine=engine(str(tiny_llama))), scalar("gone", engine=engine("org/name"))
    )
    first, second = residency.order()
    residency.read_ahead(first)
    residency.read_ahead(second)  # a hub id that is not here: nothing to read, no error
    metrics: dict[str, float] = {}
    async with asyncio.timeout(PATIENCE_S):
        while len(metrics) < 4:
            metrics |= residency.take_metrics()
            await asyncio.sleep(0.01)
    assert (
        metrics["engine/scalar/read_ahead_bytes"]
        == (tiny_llama / "model.safetensors").stat().st_size
    )
    assert metrics["engine/gone/read_ahead_bytes"] == 0.0
    await use(residency, first)
    residency.take_metrics()
    residency.read_ahead(first)  # awake: nothing to do
    await residency.close()
    assert not [key for key in residency.take_metrics() if "read_ahead" in key]


@pytest.mark.parametrize(("put_away", "reads"), [("sleep1", False), ("sleep2", True)])
async def test_weights_that_a_sleep_dropped_are_read_ahead(
    tiny_llama: Path, put_away: str, reads: bool
) -> None:
    settings = engine(str(tiny_llama), device="cuda")
    plans = sized(plan_engines([on_demand(engine=settings, put_away=put_away)]))
    residency = Residency(lambda plan: FakeHost(), placed(plans, {"": 1}))
    await use(residency)
    assert residency.states == {"scalar": "asleep"}
    residency.take_metrics()
    residency.read_ahead(residency.order()[0])
    await residency.close()
    assert ("engine/scalar/read_ahead_s" in residency.take_metrics()) == reads


# --- measured instead of planned


def two(*, planned: int, measured: int) -> list[RewardSpec]:
    """Engines a and b of 10 GiB awake; asleep `planned` GiB, of which a reports `measured`."""
    sizes = {"awake_bytes": 10 * GIB, "away_bytes": planned * GIB}
    more = {**sizes, "measured_away_bytes": measured * GIB}
    return [
        scalar("a", engine=engine("/a", device="cuda", kwargs=more)),
        scalar("b", engine=engine("/b", device="cuda", kwargs=sizes)),
    ]


async def swap(residency: Residency) -> None:
    a, b = sorted(residency.order(), key=str)
    await use(residency, a)
    await use(residency, b)


async def test_an_engine_that_sleeps_in_more_than_planned_is_counted_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    residency = residency_of(*two(planned=1, measured=5), room=Room(14 * GIB, 14 * GIB))
    await swap(residency)
    # planned: 1 + 10 <= 14; measured: 5 + 10 > 14, so its process ends
    assert residency.states == {"a": "unloaded", "b": "awake"}
    await swap(residency)
    warnings = [message for message in caplog.messages if "were planned" in message]
    assert len(warnings) == 1
    assert "a holds 5.00 GiB asleep, and 1.00 GiB were planned" in warnings[0]


async def test_an_engine_that_sleeps_in_less_than_planned_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    residency = residency_of(*two(planned=5, measured=1), room=Room(14 * GIB, 14 * GIB))
    await swap(residency)
    assert residency.states == {"a": "asleep", "b": "awake"}
    assert not any("were planned" in message for message in caplog.messages)


async def test_shared_pages_of_a_cpu_process_are_not_held_against_it() -> None:
    a, b = two(planned=1, measured=5)
    for spec in (a, b):
        spec.engines["main"] = dataclasses.replace(spec.engines["main"], device="cpu")  # type: ignore[index]
    residency = residency_of(a, b, room=Room(14 * GIB, 14 * GIB))
    await swap(residency)
    assert residency.states == {"a": "asleep", "b": "awake"}


async def test_what_others_hold_beyond_the_plan_is_given_up() -> None:
    residency = residency_of(*three(), room=Room(30, 30))
    residency.give_up("", 8)
    await one_step(residency)
    # 22 instead of 30: two awake and one asleep while scoring, as little as that otherwise
    assert sorted(residency.states.values()) == ["asleep", "awake", "awake"]
    residency.give_up("", 100)
    await one_step(residency)
    # One engine beside two that sleep always fits: 10 + 1 + 1.
    assert "awake" not in residency.states.values()
    residency.give_up("a pool that is not there", 5)


def test_graphs_that_an_older_vllm_keeps_asleep_are_planned(
    monkeypatch: pytest.MonkeyPatch, tiny_reward_llama: Path
) -> None:
    spec = engine(str(tiny_reward_llama), name="vllm", device="cuda")
    away: dict[str, int] = {}
    for version in ("0.31.0", "0.32.0"):
        monkeypatch.setattr(compat, "installed_version", lambda v=version: Version(v))
        (plan,) = sized(plan_engines([scalar(engine=spec)]), device_bytes=80 * GIB)
        away[version] = plan.away_bytes
    assert away == {"0.31.0": 600 * MIB + GIB, "0.32.0": 600 * MIB}
