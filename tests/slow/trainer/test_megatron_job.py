"""Whole jobs under strategy=megatron on a tiny random model: real Ray, vLLM, megatron-core over
gloo; policy, reference and critic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer

from rmrl import main_export
from tests.backends.megatron.tiny import write_tiny
from tests.trainer.exports import (
    a_critic_that_scores,
    every_number_is_finite,
    greedy_is_that_of_the_export,
    the_policy_moved,
)
from tests.trainer.job import Job

STEPS = 2
PPO: dict[str, Any] = {
    "algorithm__adv_estimator": "gae",
    "algorithm__use_kl_in_reward": True,
    "actor_rollout_ref__actor__strategy": "megatron",
    "actor_rollout_ref__actor__fsdp_config__param_dtype": (
        "bfloat16"
    ),  # the default: megatron has its own
    "actor_rollout_ref__actor__megatron__dtype": "float32",
    "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
    "trainer__n_gpus_per_node": 2,
    "trainer__logger": "[jsonl]",
}
TENSOR = {**PPO, "actor_rollout_ref__actor__megatron__tensor_model_parallel_size": 2}
PIPELINE = {**PPO, "actor_rollout_ref__actor__megatron__pipeline_model_parallel_size": 2}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Job:
    return Job(
        folder=tmp_path_factory.mktemp("megatron"), policy=tiny_llama, scalar=tiny_llama
    ).prepare()


def checked_lines(job: Job, out: str, steps: list[int]) -> None:
    """Finite metrics of these steps; the engines sampled with the weights that train (both sides
    compute in float32)."""
    lines = job.lines(out)
    assert [line["step"] for line in lines] == steps
    for line in lines:
        every_number_is_finite(line)
        assert line["policy/rollout_logprob_diff"] < 1e-3
        assert {
            "policy/loss",
            "policy/ref_kl",
            "critic/value_loss",
            "critic/explained_variance",
        } <= line.keys()


def test_ppo_under_tensor_parallel_goes_on_under_pipeline_parallel(
    job: Job, tmp_path: Path
) -> None:
    validation = {
        "data__val_files": job.folder / "train.parquet",
        "trainer__val_before_train": False,
        "trainer__test_freq": STEPS,
    }
    code, printed = job.run("tensor", trainer__total_training_steps=STEPS, **TENSOR, **validation)
    assert code == 0, printed[-3000:]
    checked_lines(job, "tensor", [1, 2])
    checkpoint = job.folder / "tensor" / "checkpoints" / "step_000002"
    the_policy_moved(checkpoint / "hf", job.policy)
    greedy_is_that_of_the_export(job, "tensor", step=STEPS)
    for role in ("actor", "critic"):
        assert (
            main_export.main(
                [
                    f"checkpoint={checkpoint}",
                    f"out={tmp_path / role}",
                    f"role={role}",
                    "dtype=float32",
                ]
            )
            == 0
        )
    saved, exported = (
        load_file(checkpoint / "hf" / "model.safetensors"),
        load_file(tmp_path / "actor" / "model.safetensors"),
    )
    assert saved.keys() == exported.keys()
    assert all(torch.equal(saved[name].float(), exported[name]) for name in saved)
    a_critic_that_scores(tmp_path / "critic")

    resume = {"trainer__resume_mode": "resume_path", "trainer__resume_from_path": checkpoint}
    code, printed = job.run(
        "pipeline", trainer__total_training_steps=STEPS + 1, **{**PIPELINE, **resume}
    )
    assert code == 0, printed[-3000:]
    assert "resuming from" in printed
    checked_lines(job, "pipeline", [3])


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    """A tiny mixture of experts with the tokenizer of the tiny Llama."""
    folder, llama = tmp_path_factory.mktemp("mixture"), AutoConfig.from_pretrained(tiny_llama)
    tokens = {
        name: getattr(llama, name)
        for name in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
    }
    shape = {
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": llama.vocab_size,
    }
    write_tiny(folder, "qwen3_moe", tied=False, **{**tokens, **shape, "moe_intermediate_size": 64})
    AutoTokenizer.from_pretrained(tiny_llama).save_pretrained(folder)
    return folder


def test_experts_are_trained_apart_and_sampled_together(job: Job, mixture: Path) -> None:
    """vLLM packs experts on CPU at the first load only: after a publish it would sample from other
    probabilities."""
    grpo = {
        "algorithm__adv_estimator": "grpo",
        "algorithm__use_kl_in_reward": False,
        "actor_rollout_ref__model__path": mixture,
    }
    experts = {"actor_rollout_ref__actor__megatron__expert_model_parallel_size": 2}
    code, printed = job.run(
        "experts", trainer__total_training_steps=STEPS, **{**PPO, **grpo, **experts}
    )
    assert code == 0, printed[-3000:]
    for line in job.lines("experts"):
        assert line["policy/rollout_logprob_diff"] < 1e-4
        assert line["policy/grad_norm"] > 0
