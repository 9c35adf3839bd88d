"""What a rollout engine states about itself is checked before a run, also of a user's own."""

from __future__ import annotations

import pytest

from rmrl.inference.engine_facts import rollout_facts
from rmrl.inference.rollout import ROLLOUT_ENGINES
from rmrl.trainer.check_rollout import rollout_problems
from tests.config.test_check import config_with
from tests.support import fakes

ROLLOUT = "actor_rollout_ref.rollout"
OVERRIDES = {"actor_rollout_ref.model.override_config": {"rope_theta": 1.0}}
OWN = {f"{ROLLOUT}.name": "tests.contracts.toy_parts:Counting"}
WIDE = {"actor_rollout_ref.model.float32_head": True}
POOL = {f"{ROLLOUT}.pool": "fast"}


@pytest.mark.parametrize(
    ("changes", "seen", "typed"),
    [
        (
            {f"{ROLLOUT}.weight_transport": "nccl"},
            "weight_transport=nccl works on CUDA with rollout.name=vllm with rollout.pool",
            "use weight_transport=file",
        ),
        (
            {f"{ROLLOUT}.weight_transport": "ipc", **POOL},
            "weight_transport=ipc works on CUDA with rollout.name=vllm without rollout.pool",
            "use weight_transport=file",
        ),
        (
            {f"{ROLLOUT}.weight_transport": "ipc", **OWN},
            "weight_transport=ipc works on CUDA with rollout.name=vllm without rollout.pool",
            "use weight_transport=file",
        ),
        (
            {**OVERRIDES, f"{ROLLOUT}.name": "hf"},
            "override_config reaches training, but not rollout.name=hf",
            "config.json",
        ),
        (
            {f"{ROLLOUT}.batch_invariant": True, **OWN},
            "only vllm on NVIDIA GPUs samples so",
            "leave it out",
        ),
        ({**WIDE, **OWN}, "rounds its logits", "use vllm (0.26 or newer) or hf"),
        (
            {**WIDE, f"{ROLLOUT}.batch_invariant": True},
            "rollout.batch_invariant and engine_kwargs.quantization give no float32 logits",
            "leave one of them out",
        ),
        (
            {**WIDE, f"{ROLLOUT}.engine_kwargs": {"quantization": "fp8"}},
            "and engine_kwargs.quantization give no float32 logits",
            "leave one of them out",
        ),
    ],
)
def test_what_the_engine_does_not_do_is_one_sentence(
    changes: dict[str, object], seen: str, typed: str
):
    (problem,) = rollout_problems(config_with(**changes), device="cuda")
    assert seen in problem
    assert typed in problem


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {f"{ROLLOUT}.weight_transport": "nccl", **POOL},
        {f"{ROLLOUT}.weight_transport": "ipc"},
        {f"{ROLLOUT}.batch_invariant": True},
        WIDE,
        {**WIDE, f"{ROLLOUT}.name": "hf"},
        OVERRIDES,
        {**OVERRIDES, **OWN},
    ],
)
def test_what_the_engine_does_is_no_problem(changes: dict[str, object]):
    assert list(rollout_problems(config_with(**changes), device="cuda")) == []


@pytest.mark.parametrize("name", ROLLOUT_ENGINES)
def test_every_engine_states_known_devices_and_transports(name: str):
    facts = rollout_facts(name)
    assert {*facts.batch_invariant_on} <= {"cpu", "cuda"}
    assert (
        {"auto", "file"}
        <= {*facts.weight_transports}
        <= {"auto", "file", "ipc", "nccl", "nccl_m2n"}
    )


def test_engine_arguments_follow_from_other_settings():
    derived = rollout_facts("vllm").derived_arguments
    assert derived({}, "file") == {}
    assert derived({"rope_theta": 1.0}, "ipc") == {
        "hf_overrides": {"rope_theta": 1.0},
        "weight_transfer_config": {"backend": "ipc"},
    }
    assert rollout_facts(fakes.ROLLOUT).derived_arguments({"rope_theta": 1.0}, "auto") == {}
