"""What the engines of rewards claim, where and when, and what they may hold in all."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rmrl.assemble import memory
from rmrl.assemble.memory import budget_of, budgets, engine_claims, prepare_engines, scoring_plan
from rmrl.cluster.devices import Devices, Machine, cpu_devices
from rmrl.cluster.gpu import Gpu
from rmrl.cluster.memory_plan import PHASES
from rmrl.config.schema import ScoreTrainerConfig
from rmrl.errors import ConfigError, MemoryPlanError
from rmrl.inference.gpu_reserve import ENGINE_PROCESS_BYTES
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.rewards.residency import Budget, EnginePlan, Room, placed, plan_engines, sized
from rmrl.rewards.specs.spec import RewardSpec

# embeddings 1024 x 128, tied; two layers of q, o 128 x 128, k, v 64 x 128, three 128 x 256, two
# norms; the last norm; 2 bytes each
WEIGHTS = 2 * (1024 * 128 + 2 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 128 * 256 + 2 * 128) + 128)
MIB, GIB = 2**20, 2**30


def engine_spec(path: Path, **changes: Any) -> EngineSpec:
    spec = EngineSpec(
        path=str(path), runner="generate", name="vllm", dtype="bfloat16", max_model_len=None, max_num_seqs=8, max_num_batched_tokens=512,
        tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=100 * MIB, device="cpu", threads=1,
    )  # fmt: skip
    return dataclasses.replace(spec, **changes)


def reward(
    name: str, path: Path, *, residency: str = "auto", put_away: str = "auto", **changes: Any
) -> RewardSpec:
    engines = {"main": engine_spec(path, **changes)}
    return RewardSpec(
        name=name,
        kind="generative",
        weight=1.0,
        engines=engines,
        residency=residency,
        put_away=put_away,
    )


def engines(*rewards: RewardSpec, **pools: int) -> list[EnginePlan]:
    trainer = ScoreTrainerConfig(
        resource_pools={name: {"n_gpus_per_node": count} for name, count in pools.items()}
    )
    return prepare_engines(rewards, trainer, cpu_devices())


def test_an_auto_engine_is_awake_while_scoring_and_away_otherwise(tiny_llama: Path) -> None:
    (claim,) = engine_claims(engines(reward("judge", tiny_llama)))
    assert (claim.who, claim.place, claim.when, claim.alternates) == ("judge", "", ("score",), True)
    assert claim.awake_bytes == 2 * WEIGHTS + 100 * MIB + ENGINE_PROCESS_BYTES["cpu"]
    assert claim.away_bytes == ENGINE_PROCESS_BYTES["cpu"]
    assert claim.what == f"{tiny_llama.name} vllm/generate bfloat16, auto, sleep2"


def test_a_resident_engine_and_one_in_a_pool_hold_their_memory_always(tiny_llama: Path) -> None:
    specs = (
        reward("r", tiny_llama, residency="resident"),
        reward("p", tiny_llama, pool="judges", put_away="unload", replicas=2),
    )
    resident, pooled = engine_claims(engines(*specs, judges=1))
    assert resident.away_bytes == resident.awake_bytes
    assert (resident.when, resident.alternates) == (PHASES, False)
    assert (pooled.when, pooled.alternates, pooled.away_bytes, pooled.place) == (
        PHASES,
        True,
        0,
        "judges",
    )
    assert pooled.awake_bytes == 2 * resident.awake_bytes
    assert pooled.what == f"{tiny_llama.name} vllm/generate bfloat16 x2, auto, unload"


def test_an_engine_in_more_parts_than_cores_is_refused(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "cores", lambda: 2)
    with pytest.raises(ConfigError) as caught:
        engines(reward("judge", tiny_llama, tensor_parallel_size=8))
    assert caught.value.problems == [
        "the engine of judge: tensor_parallel_size=8 starts a process for each part, which needs a"
        " core of its own, and this machine has 2 CPU cores; leave it out: one process uses all of"
        " them"
    ]
    assert len(engines(reward("judge", tiny_llama, tensor_parallel_size=2))) == 1


def test_the_largest_engine_must_fit_with_the_others_away(tiny_llama: Path) -> None:
    plans = engines(reward("a", tiny_llama), reward("b", tiny_llama, kv_cache_bytes=200 * MIB))
    need = 2 * WEIGHTS + (200 + 900 + 900) * MIB  # b awake, a asleep
    fits = scoring_plan(plans, budget_bytes=need)
    fits.check()
    assert budget_of(fits) == Budget({"": Room(need, need)})  # no policy: idle engines may stay
    with pytest.raises(
        MemoryPlanError,
        match=r"phase 'score' needs 1\.95 GiB and memory has 1\.95 GiB; largest: b 1\.0\d GiB",
    ):
        scoring_plan(plans, budget_bytes=need - 1).check()


def test_the_plan_counts_replicas_that_fill_the_devices(tiny_llama: Path) -> None:
    gpus = (Gpu(total_bytes=80 * GIB, free_bytes=78 * GIB),) * 8
    devices = Devices(kind="cuda", machines=(Machine(gpus=gpus, host_free_bytes=100 * GIB),))
    trainer = ScoreTrainerConfig(n_gpus_per_node=8)
    judge = reward("judge", tiny_llama, device="cuda", tensor_parallel_size=2, replicas=None)
    plans = prepare_engines([judge], trainer, devices)
    plan = scoring_plan(plans, **budgets(trainer, devices))
    engine, host = plan.claims
    assert engine.devices == tuple(f"gpu {number}" for number in range(8))
    assert "tp2 x4" in engine.what  # 8 devices / 2
    assert host.awake_bytes == 4 * WEIGHTS
    assert plan.budgets["gpu 7"] == 78 * GIB
    assert plan.budgets["host memory"] == 100 * GIB


@pytest.mark.parametrize(
    ("host_bytes", "policy_bytes", "expected"),
    [
        (10 * WEIGHTS, 0, (4, 4)),
        (9 * WEIGHTS, 2 * WEIGHTS, (3, 4)),
        (7 * WEIGHTS - 1, 0, (3, 3)),
        (2 * WEIGHTS, 0, (1, 1)),
        (WEIGHTS, 0, (1, 1)),  # which does not fit either
    ],
)
def test_an_open_number_of_replicas_follows_the_host_memory(
    tiny_llama: Path,
    caplog: pytest.LogCaptureFixture,
    host_bytes: int,
    policy_bytes: int,
    expected: tuple[int, int],
) -> None:
    gpus = (Gpu(total_bytes=80 * GIB, free_bytes=78 * GIB),) * 4
    devices = Devices(kind="cuda", machines=(Machine(gpus=gpus, host_free_bytes=host_bytes),))
    trainer = ScoreTrainerConfig(n_gpus_per_node=4)
    specs = [
        reward("a", tiny_llama, device="cuda", replicas=None),
        reward("b", tiny_llama, device="cuda", replicas=None, max_num_seqs=4),
        reward("c", tiny_llama, device="cuda", replicas=4, put_away="unload"),
    ]
    plans = prepare_engines(specs, trainer, devices, policy_host_bytes=policy_bytes)
    assert tuple(plan.replicas for plan in plans) == (*expected, 4)
    assert [len(plan.devices) for plan in plans] == [*expected, 4]
    lowered = [count for count in expected if count < 4]
    assert len(caplog.messages) == len(lowered)
    if lowered:
        text = f"the engine of a has {expected[0]} of the 4 replicas that its devices have room for"
        assert text in caplog.messages[0]
        assert "engine.replicas=1 keeps one" in caplog.messages[0]


def test_a_given_number_of_replicas_stays_and_does_not_fit(tiny_llama: Path) -> None:
    gpus = (Gpu(total_bytes=80 * GIB, free_bytes=78 * GIB),) * 4
    devices = Devices(kind="cuda", machines=(Machine(gpus=gpus, host_free_bytes=WEIGHTS),))
    trainer = ScoreTrainerConfig(n_gpus_per_node=4)
    plans = prepare_engines([reward("a", tiny_llama, device="cuda", replicas=2)], trainer, devices)
    with pytest.raises(MemoryPlanError, match=r"fewer reward\.engine\.replicas"):
        scoring_plan(plans, **budgets(trainer, devices)).check()


def test_a_pool_that_is_not_there_is_a_mistake(tiny_llama: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"p names pool 'judges', which trainer\.resource_pools does not have"
    ):
        engines(reward("p", tiny_llama, pool="judges"))


def test_on_gpus_each_engine_has_its_devices_and_sleeps_in_host_memory(tiny_llama: Path) -> None:
    specs = (
        reward("a", tiny_llama, device="cuda"),
        reward("b", tiny_llama, device="cuda", pool="judges", put_away="sleep2"),
    )
    plans = placed(sized(plan_engines(specs), device_bytes=80 * GIB), {"": 2, "judges": 1})
    plan = scoring_plan(plans, budget_bytes=60 * GIB, host_bytes=GIB)
    assert [(claim.who, claim.devices, claim.awake_bytes) for claim in plan.claims] == [
        ("a", ("gpu 0",), 40 * GIB),
        ("b", ("judges gpu 0",), 40 * GIB),
        ("a", ("host memory",), WEIGHTS),
    ]
    assert plan.budgets == {"gpu 0": 60 * GIB, "judges gpu 0": 60 * GIB, "host memory": GIB}
    plan.check()
    with pytest.raises(MemoryPlanError, match=r"host memory has 0\.00 GiB"):
        scoring_plan(plans, budget_bytes=60 * GIB, host_bytes=1000).check()


def test_the_budget_is_what_was_asked_for_or_what_is_free() -> None:
    assert budgets(ScoreTrainerConfig(memory_budget_gb=1.5), cpu_devices()) == {
        "budget_bytes": 3 * GIB // 2,
        "host_bytes": None,
    }
    assert budgets(ScoreTrainerConfig(), cpu_devices())["budget_bytes"] > 100 * MIB


def test_a_float32_judge_takes_twice_the_memory_and_the_plan_says_why(tiny_llama: Path) -> None:
    half, single = (
        engine_claims(engines(reward("judge", tiny_llama, dtype=dtype)))[0]
        for dtype in ("bfloat16", "float32")
    )
    assert (
        single.awake_bytes - half.awake_bytes == 2 * WEIGHTS
    )  # twice 2 bytes more each: loading holds the weights twice
    assert "vllm/generate float32" in single.what
