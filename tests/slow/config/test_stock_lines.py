"""Stock command lines with paths, models and counts changed, nothing else: two real steps of
each."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.data.write import write_rows
from tests.config.reference_lines import changed
from tests.config.test_stock_lines import line
from tests.inputs import read_lines, rule
from tests.trainer.job import run_typed

FOR_REAL = {"dapo": "vllm", "ppo, kl in the reward": "hf"}
"""Line -> the engine that samples. These have rounds of sampling, a reference and a critic."""
NIGHTLY = {
    "grpo, sequences packed and kernels fused": "vllm",
    "grpo, bypass": "vllm",
    "grpo": "hf",
    "remax": "hf",
    "pf_ppo": "hf",
    "rloo, corrected": "hf",
}
"""The log-probabilities of the engine; groups, greedy baselines, redrawn rows, corrected samples,
for all of which every line is trained on fakes as well."""


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *FOR_REAL.items(),
        *(pytest.param(*item, marks=pytest.mark.nightly) for item in NIGHTLY.items()),
    ],
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
        rule(
            "share = sum(c.isalpha() for c in solution_str) / max(len(solution_str), 1)",
            "return {'score': share, 'acc': len(solution_str) % 2}",
        )
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
    steps = [row["step"] for row in read_lines(out / "samples.jsonl")]
    assert sorted(set(steps)) == [1, 2]
    if "fused" in name:
        assert "no effect here: " in printed
