"""What weight_transport=auto means, by device, place of the engines, vLLM and memory."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from rmrl.cluster.memory_plan import Claim, MemoryPlan
from rmrl.config.schema import Config
from rmrl.inference.vllm import compat
from rmrl.models.checkpoint_inspect import tensor_headers, weight_bytes
from rmrl.trainer.check_rollout import rollout_problems
from rmrl.trainer.plan import Extras, memory_plan
from rmrl.trainer.transport import chosen_transport, transfer_bytes

GIB = 2**30


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "installed_version", lambda: Version("0.32.0"))
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)


def config_of(path: Path, **rollout: Any) -> Config:
    config = Config()
    config.actor_rollout_ref.model.path = str(path)
    config.trainer.n_gpus_per_node = 2
    config.trainer.resource_pools = {"samplers": {"n_gpus_per_node": 2}}
    for name, value in rollout.items():
        setattr(config.actor_rollout_ref.rollout, name, value)
    return config


def chosen(config: Config, *, device: str = "cuda", budget_bytes: int = 80 * GIB) -> str:
    plan = memory_plan(
        config,
        [],
        device=device,
        budget_bytes=budget_bytes,
        extras=Extras(),
        gpu_bytes=budget_bytes,
    )
    return chosen_transport(config, plan, device=device)


@pytest.mark.parametrize(
    ("rollout", "device", "transport"),
    [
        ({}, "cuda", "ipc"),
        ({}, "cpu", "file"),
        ({"pool": "samplers"}, "cuda", "nccl"),
        ({"pool": "samplers"}, "cpu", "file"),
        ({"name": "sglang"}, "cuda", "file"),
        ({"name": "hf", "pool": "samplers"}, "cuda", "file"),
        ({"engine_kwargs": {"vllm": {"weight_transfer_config": {"backend": "x"}}}}, "cuda", "file"),
        ({"weight_transport": "file"}, "cuda", "file"),
        ({"weight_transport": "ipc"}, "cuda", "ipc"),
    ],
)
def test_the_most_direct_transport_is_chosen(
    tiny_llama: Path, rollout: dict[str, Any], device: str, transport: str
) -> None:
    assert chosen(config_of(tiny_llama, **rollout), device=device) == transport


def test_a_vllm_without_the_training_side_gets_files(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "installed_version", lambda: Version("0.27.1"))
    assert chosen(config_of(tiny_llama)) == "file"
    (problem,) = rollout_problems(config_of(tiny_llama, weight_transport="ipc"), device="cuda")
    assert "weight_transport=ipc needs vLLM 0.28 or newer; or use weight_transport=file" in problem


@pytest.mark.parametrize(
    ("version", "installed", "rollout", "strategy", "words"),
    [
        ("0.32.0", True, {}, "fsdp2", "needs vLLM 0.33 or newer"),
        ("0.33.0", False, {}, "fsdp2", "needs NVIDIA's package for it: pip install nccl-extensions"),
        ("0.33.0", True, {"pool": None}, "fsdp2", "works on CUDA with rollout.name=vllm with rollout.pool"),
        ("0.33.0", True, {}, "megatron", "sends the shards of actor.strategy=fsdp2 or fsdp, and this run has strategy=megatron"),
        ("0.33.0", True, {}, "fsdp2", ""),
    ],
)  # fmt: skip
def test_shards_to_shards_needs_a_pool_and_its_packages(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, version: str, installed: bool, rollout: dict[str, Any], strategy: str, words: str
) -> None:  # fmt: skip
    monkeypatch.setattr(compat, "installed_version", lambda: Version(version))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object() if installed else None)
    config = config_of(tiny_llama, **{"pool": "p", "weight_transport": "nccl_m2n", **rollout})
    config.actor_rollout_ref.actor.strategy = strategy
    problems = list(rollout_problems(config, device="cuda"))
    assert [words in problem for problem in problems] == [True] * bool(words)


def test_what_cannot_be_shared_between_processes_goes_through_files(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert chosen(config_of(tiny_llama)) == "file"
    assert "expandable segments" in caplog.messages[0]


def test_ipc_needs_room_for_both_sides_at_once(
    tiny_llama: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    config = config_of(tiny_llama)
    coming = transfer_bytes(config)
    weights = weight_bytes(str(tiny_llama), "bfloat16")
    # the engine's process, its weights, and 1 GiB of buffer twice: no tensor here is larger
    assert max(header.count for header in tensor_headers(tiny_llama)) * 2 < GIB
    assert coming == 600 * 2**20 + weights + 2 * GIB
    plan = memory_plan(
        config, [], device="cuda", budget_bytes=80 * GIB, extras=Extras(), gpu_bytes=80 * GIB
    )
    training = next(claim for claim in plan.claims if claim.who == "training")
    # no activations are alive while weights travel
    assert training.held_bytes < training.awake_bytes
    enough = training.held_bytes + coming
    assert chosen(config, budget_bytes=enough) == "ipc"
    assert chosen(config, budget_bytes=enough - 1) == "file"
    assert "at the same time, and it has" in caplog.messages[0]


def test_a_reward_named_rollout_needs_its_room_too(tiny_llama: Path) -> None:
    config = config_of(tiny_llama)
    enough = memory_plan(
        config, [], device="cuda", budget_bytes=80 * GIB, extras=Extras(), gpu_bytes=80 * GIB
    )
    training = next(claim for claim in enough.claims if claim.who == "training")
    reward = Claim(
        who="rollout",
        what="a judge, asleep",
        awake_bytes=GIB,
        away_bytes=1,
        when=("score",),
        devices=training.devices,
        place="",
    )
    needed = training.held_bytes + transfer_bytes(config)
    for room, transport in ((needed, "file"), (needed + 1, "ipc")):
        budgets = dict.fromkeys(training.devices, room)
        plan = MemoryPlan([*enough.claims, reward], budgets)
        assert chosen_transport(config, plan, device="cuda") == transport
