"""What training logged for its samples is what `python -m rmrl.main_score` gives for the same
samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmrl.data.write import write_rows
from tests.trainer.job import LIMIT_S, REPOSITORY, Job, three_rewards

MODELS = ("letters", "judge", "quality")
BATCH_SIZES = (1, 7)
"""Rows scored at a time; training scored all responses of a step together."""


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, tiny_reward_llama: Path
) -> Job:
    """Two GRPO steps with a rule, a greedy judge and a scalar model; the rows say what the scalar
    model is to be told."""
    folder = tmp_path_factory.mktemp("trained")
    job = Job(
        folder=folder,
        policy=tiny_llama,
        scalar=tiny_reward_llama,
        overrides=reward_keys(tiny_llama, tiny_reward_llama),
    ).prepare()
    rows = [
        {
            "prompt": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": f"count to {n}"},
            ],
            "rm_prompt": f"He asked to count to {n}.",
            "data_source": "counting",
            "reward_model": {"ground_truth": str(n)},
        }
        for n in range(16)
    ]
    write_rows(folder / "train.parquet", rows, overwrite=True)
    code, printed = job.run("run", trainer__total_training_steps=2)
    assert code == 0, printed[-3000:]
    return job


def reward_keys(judge: Path, scalar: Path) -> dict[str, object]:
    """Everything of section `reward` that training and scoring share; both models are stored in
    float32, and so computed in it."""
    return three_rewards(judge, scalar)


def samples_as_rows(job: Job) -> list[dict[str, Any]]:
    """Training's samples in the columns that offline scoring reads; rm_prompt comes from the
    training file."""
    from transformers import AutoTokenizer

    from rmrl.config.schema import DataConfig
    from rmrl.data.dataset import iterate_rows

    asked = {
        row.id: row.rm_prompts[""]
        for row in iterate_rows(
            DataConfig(train_files=str(job.folder / "train.parquet")), split="train"
        )
    }
    tokenizer = AutoTokenizer.from_pretrained(job.policy)
    return [
        {
            "prompt": sample["messages"],
            "response": sample["response"],
            "rm_prompt": asked[sample["prompt_id"]],
            "data_source": sample["data_source"],
            "reward_model": {"ground_truth": sample["ground_truth"]},
            "finish_reason": sample["finish_reason"],
            "response_tokens": len(
                tokenizer(sample["response"], add_special_tokens=False)["input_ids"]
            ),
        }
        for sample in job.lines("run", "samples.jsonl")
    ]


def score(job: Job, data: Path, out: Path, *, batch_size: int) -> list[dict[str, Any]]:
    keys = {
        **reward_keys(job.policy, job.scalar),
        "reward.functions_dir": job.folder / "functions",
        "reward.rule_workers": 1,
        "reward.engine.kv_cache_bytes": 2**26,
        "reward.engine.max_model_len": 256,
        "trainer.device": "cpu",
        "data.files": data,
        "data.batch_size": batch_size,
        "out": out,
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "rmrl.main_score",
            *(f"{key}={value}" for key, value in keys.items()),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    import pyarrow.parquet as pq

    return pq.read_table(out).to_pylist()


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_offline_scores_are_those_of_training_to_the_last_bit(
    trained: Job, tmp_path: Path, batch_size: int
) -> None:
    samples = trained.lines("run", "samples.jsonl")
    assert len(samples) == 2 * 4 * 4
    write_rows(tmp_path / "samples.parquet", samples_as_rows(trained), overwrite=False)
    scored = score(
        trained, tmp_path / "samples.parquet", tmp_path / "scored.parquet", batch_size=batch_size
    )
    assert len(scored) == len(samples)
    for row, sample in zip(scored, samples, strict=True):
        assert row["response"] == sample["response"]
        assert (
            [row[f"status_{name}"] for name in MODELS]
            == [sample["scores"][name]["status"] for name in MODELS]
            == ["ok"] * 3
        )
        for name in MODELS:
            assert row[f"score_{name}"] == sample["scores"][name]["score"]
        assert json.loads(row["extra_letters"]) == sample["scores"]["letters"]["extra"]
        assert row["reward"] == sample["reward"]
        told = 1.0 * row["score_letters"] + 0.5 * row["score_judge"] + 0.25 * row["score_quality"]
        assert row["reward"] == pytest.approx(told, rel=1e-12)
    # numbers that are all alike would agree by themselves
    assert len({row["score_quality"] for row in scored}) > 10
    assert len({row["score_letters"] for row in scored}) > 3
