"""Ways to train, each with real Ray, vLLM and torch.distributed on tiny random models: three jobs
that together switch everything on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rmrl import main_export
from rmrl.trainer.checkpoint import verify
from tests.slow.trainer.test_main_job import greedy_is_that_of_the_export
from tests.trainer.job import Job, left_in_shared_memory, shared_memory

pytestmark = pytest.mark.alone

STEPS = 3
ALL: dict[str, Any] = {
    "data__val_files": "{folder}/train.parquet",
    "trainer__val_before_train": False,
    "trainer__test_freq": STEPS,
}
WAYS: dict[str, dict[str, Any]] = {
    # One step off: engines with devices of their own sample the next batch, and greedy baselines,
    # while adapters train.
    "ahead": {
        "algorithm__adv_estimator": "remax",
        "algorithm__filter_groups__enable": True,
        "algorithm__filter_groups__max_num_gen_batches": 2,
        "algorithm__rollout_correction__rollout_is": "token",
        "actor_rollout_ref__model__lora_rank": 4,
        "actor_rollout_ref__rollout__pool": "sampling",
        "trainer__resource_pools__sampling__n_gpus_per_node": 1,
        "trainer__max_staleness": 1,
    },
    # Two processes under the older sharding hold policy, reference and critic.
    "fsdp": {
        "algorithm__adv_estimator": "gae",
        "algorithm__use_kl_in_reward": True,
        "algorithm__kl_ctrl__type": "adaptive",
        "algorithm__rollout_correction__rollout_rs": "geometric",
        "actor_rollout_ref__actor__strategy": "fsdp",
        "critic__checkpoint__save_contents": "[hf_model]",
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
        "trainer__n_gpus_per_node": 2,
        "trainer__critic_warmup": 1,
        "trainer__save_freq": 1,
        "trainer__max_actor_ckpt_to_keep": 1,
    },
    # The critic, adapters and a head, computes in a pool while the policy does.
    "critic-pool": {
        "algorithm__adv_estimator": "gae",
        "algorithm__use_pf_ppo": True,
        "actor_rollout_ref__actor__use_kl_loss": True,
        "actor_rollout_ref__actor__policy_loss__loss_mode": "sapo",
        "actor_rollout_ref__actor__entropy_coeff": 0.001,
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
        "critic__pool": "values",
        "critic__model__lora_rank": 4,
        "trainer__resource_pools__values__n_gpus_per_node": 1,
    },
}
MEASURED = {
    "ahead": ("train/staleness", "group/rounds", "rollout_correction/weight_mean"),
    "fsdp": (
        "reward/kl_coef",
        "rollout_correction/rejected",
        "critic/value_loss",
        "policy/rollout_logprob_diff",
    ),
    "critic-pool": (
        "policy/ref_kl",
        "pf_ppo/distinct",
        "critic/value_loss",
        "critic/explained_variance",
        "policy/rollout_logprob_diff",
    ),
}
"""Metrics of every step that only this way has."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Job:
    return Job(
        folder=tmp_path_factory.mktemp("ways"), policy=tiny_llama, scalar=tiny_llama
    ).prepare()


@pytest.mark.parametrize("way", WAYS)
def test_a_way_trains_publishes_and_leaves_checkpoints_that_load(job: Job, way: str) -> None:
    before = shared_memory()
    settings = {
        key: str(value).format(folder=job.folder) for key, value in {**ALL, **WAYS[way]}.items()
    }
    code, printed = job.run(way, trainer__total_training_steps=STEPS, **settings)
    assert code == 0, printed[-3000:]
    assert left_in_shared_memory(before, of="rmrl") == set()
    lines = job.lines(way)
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert [
            key
            for key, value in line.items()
            if isinstance(value, float) and not math.isfinite(value)
        ] == []
        assert [key for key in MEASURED[way] if key not in line] == []
    out = job.folder / way / "checkpoints"
    assert verify(out / "step_000003").step == STEPS
    the_policy_moved(out / "step_000003" / "hf", job.policy)
    greedy_is_that_of_the_export(job, way, step=STEPS)
    CHECKS[way](job, lines, out)


def the_policy_moved(hf: Path, start: Path) -> None:
    """Its export has the names and shapes of the model it began as, and other numbers."""
    now, then = load_file(hf / "model.safetensors"), load_file(start / "model.safetensors")
    assert {name: tensor.shape for name, tensor in now.items()} == {
        name: tensor.shape for name, tensor in then.items()
    }
    assert any(not torch.equal(now[name].float(), then[name].float()) for name in then)


def ahead(job: Job, lines: list[dict[str, Any]], out: Path) -> None:
    assert [line["train/staleness"] for line in lines] == [0, 1, 1]
    samples = job.lines("ahead", "samples.jsonl")
    assert {(row["step"], row["policy_version"]) for row in samples} == {(1, 0), (2, 0), (3, 1)}
    assert (
        all(row["advantage"] is not None for row in samples if row["step"] == 1)
        or lines[0]["group/rounds"] > 1
    )


def fsdp(job: Job, lines: list[dict[str, Any]], out: Path) -> None:
    assert [folder.name for folder in out.iterdir()] == ["step_000003"]
    assert ["policy/loss" in line for line in lines] == [False, True, True]
    # float32 on both sides: engines with older weights would disagree by far more
    assert all(line["policy/rollout_logprob_diff"] < 1e-3 for line in lines)
    a_critic_that_scores(out / "step_000003" / "hf_critic")


def critic_pool(job: Job, lines: list[dict[str, Any]], out: Path) -> None:
    assert all(line["policy/rollout_logprob_diff"] < 1e-3 for line in lines)
    exported = job.folder / "exported"
    assert (
        main_export.main(
            [f"checkpoint={out / 'step_000003'}", f"out={exported}", "role=critic", "dtype=float32"]
        )
        == 0
    )
    a_critic_that_scores(exported)


def a_critic_that_scores(folder: Path) -> None:
    """A model of one label for transformers; of adapters it knows nothing."""
    from transformers import AutoModelForSequenceClassification

    model, told = AutoModelForSequenceClassification.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(told[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 1)


CHECKS = {"ahead": ahead, "fsdp": fsdp, "critic-pool": critic_pool}
