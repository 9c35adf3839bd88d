"""The customer-service example trains on a CPU with its two judges."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.config.reference_lines import TWO_JUDGES, changed, typed
from tests.examples.test_rider import EXAMPLE, ROOT, example, make_data
from tests.forks.servers import import_path
from tests.inputs import read_lines
from tests.trainer.job import run_typed

__all__ = ["make_data"]


@pytest.fixture(scope="module")
def untrained(make_data: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Policy and judges of the example's shape with random weights; a character of the dialogues is
    a token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "make_data", make_data)
        make_policy = example("make_policy")
    folder = tmp_path_factory.mktemp("untrained")
    tokenizer = make_policy.character_tokenizer(
        [(EXAMPLE / "dialogues.jsonl").read_text(encoding="utf-8")]
    )
    make_policy.tiny_model(len(tokenizer), seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def four_dialogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train.parquet of four dialogues, made as a user makes it."""
    folder = tmp_path_factory.mktemp("data")
    lines = (EXAMPLE / "dialogues.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    source = folder / "four.jsonl"
    source.write_text("".join(lines[:4]), encoding="utf-8")
    command = [
        sys.executable,
        "data_preprocess/rider.py",
        "--source",
        str(source),
        "--test-source",
        str(source),
        "--out",
        str(folder),
    ]
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300, capture_output=True)
    return folder / "train.parquet"


def test_the_reference_command_line_runs_on_a_cpu(
    untrained: Path, four_dialogues: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Two steps of two dialogues each, one process instead of eight GPUs.

    Paths and counts are others, and the rule is left out: an untrained policy never gives the
    judges a reply that counts.
    """
    overrides = [
        "reward_model.combine_reward=False",
        *changed(
            typed(TWO_JUDGES),
            data__train_files=four_dialogues,
            data__val_files=four_dialogues,
            data__train_batch_size=2,
            reward_model__model__path=f"[{untrained},{untrained}]",
            reward_model__model__input_tokenizer=untrained,
            reward_model__model__tensor_model_parallel_size=1,
            reward_model__reward_vllm_rollout__tensor_model_parallel_size=1,
            actor_rollout_ref__model__path=untrained,
            actor_rollout_ref__actor__ppo_mini_batch_size=2,
            actor_rollout_ref__rollout__tensor_model_parallel_size=1,
            trainer__n_gpus_per_node=1,
            trainer__total_epochs=1,
        ),
    ]
    monkeypatch.setattr(
        "tests.trainer.job.LIMIT_S", 480.0
    )  # replies of 2048 tokens take their time
    out, printed = run_typed(overrides, tmp_path)
    assert "reward_model.* is now reward.models=[rider_reward,consistency_reward]" in printed
    assert out == tmp_path / "runs" / "demo" / "default"
    rows = read_lines(out / "samples.jsonl")
    assert [row["step"] for row in rows] == [1] * 8 + [2] * 8
    for row in rows:
        verdicts = row["scores"]
        assert {name: verdict["status"] for name, verdict in verdicts.items()} == {
            "rider_reward": "ok",
            "consistency_reward": "ok",
        }
        assert verdicts["rider_reward"]["score"] in (-1.0, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
        assert verdicts["consistency_reward"]["score"] in (0.0, 1.0)
        total = (
            0.3 * verdicts["rider_reward"]["score"] + 0.5 * verdicts["consistency_reward"]["score"]
        )
        assert row["reward"] == pytest.approx(total)
