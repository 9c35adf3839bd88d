"""Stock command lines with paths, models and counts changed, nothing else: two steps of each."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.check import config_problems
from rmrl.config.load import compose_config
from rmrl.config.schema import Config
from rmrl.data.write import write_rows
from tests.config.reference_lines import changed, typed
from tests.config.stock_lines import BASE, STOCK
from tests.trainer.fake_run import FakeParts, fake_run, records, train_and_close
from tests.trainer.job import run_typed

FOR_REAL = (
    "grpo, sequences packed and kernels fused",
    "dapo",
    "ppo, kl in the reward",
    "grpo, bypass",
)
"""These cover a reference, rounds of sampling, a critic, and the log-probabilities of the
engine."""
WITHOUT_VLLM = ("grpo", "remax", "pf_ppo", "rloo, corrected")
"""Sampled by the engine that starts soonest: groups, greedy baselines, a critic, corrected samples."""


def line(name: str, **paths: object) -> list[str]:
    return typed(BASE + STOCK[name], **{"TRAIN": "train.parquet", "POLICY": "policy", **paths})


def composed(name: str) -> Config:
    """At the size of a run of fakes: 4 prompts a step, two optimizer steps, groups as they are."""
    counts: dict[str, Any] = {
        "data__train_batch_size": 4,
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
    }
    if STOCK[name].find("gen_batch_size") >= 0:
        counts["data__gen_batch_size"] = 6
    return compose_config(changed(line(name), **counts))


@pytest.mark.parametrize("name", STOCK)
def test_a_stock_line_trains_two_steps_of_fakes(name: str, tmp_path: Path):
    config = composed(name)
    config.actor_rollout_ref.actor.strategy = "fake"
    run = fake_run(
        tmp_path,
        total_steps=2,
        parts=FakeParts(),
        algorithm=config.algorithm,
        critic=config.critic,
        actor_rollout_ref__actor=config.actor_rollout_ref.actor,
        actor_rollout_ref__rollout__n=config.actor_rollout_ref.rollout.n,
        data__gen_batch_size=config.data.gen_batch_size,
    )
    assert config_problems(run.config) == []
    asyncio.run(train_and_close(run))
    lines = records(run.out_dir / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    for metrics in lines:
        assert [
            key
            for key, value in metrics.items()
            if isinstance(value, float) and not math.isfinite(value)
        ] == []
    assert ("critic/value_loss" in lines[0]) == ("gae" in STOCK[name])
    assert ("group/rounds" in lines[0]) == ("filter_groups" in STOCK[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "engine"),
    [*((name, "vllm") for name in FOR_REAL), *((name, "hf") for name in WITHOUT_VLLM)],
)
def test_a_stock_line_runs_two_steps_on_a_cpu(
    name: str, engine: str, tiny_llama: Path, tmp_path: Path
):
    prompts = [[{"role": "user", "content": f"{n}+1="}] for n in range(8)]
    rows = [
        {"prompt": prompt, "data_source": "letters", "reward_model": {"ground_truth": "1"}}
        for prompt in prompts
    ]
    write_rows(tmp_path / "train.parquet", rows, overwrite=True)
    (tmp_path / "rule.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    share = sum(c.isalpha() for c in solution_str) / max(len(solution_str), 1)\n"
        "    return {'score': share, 'acc': len(solution_str) % 2}\n"
    )
    counts = {
        "data__train_batch_size": 4,
        "data__max_prompt_length": 64,
        "data__max_response_length": 16,
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
        "actor_rollout_ref__rollout__name": engine,
        "trainer__n_gpus_per_node": 1,
        "trainer__total_epochs": 1,
        **(
            {"data__gen_batch_size": 8, "algorithm__filter_groups__max_num_gen_batches": 1}
            if name == "dapo"
            else {}
        ),
    }
    words = changed(line(name, TRAIN=tmp_path / "train.parquet", POLICY=tiny_llama), **counts)
    out, printed = run_typed(
        [*words, f"custom_reward_function.path={tmp_path / 'rule.py'}"], tmp_path
    )
    steps = [
        json.loads(text)["step"]
        for text in (out / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert sorted(set(steps)) == [1, 2]
    if "fused" in name:
        assert "no effect here: " in printed
