"""`rmrl train-rm seeds=2`: adapters as one ensemble in one load, and one averaged model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file

from rmrl.cli import main
from rmrl.offline.rewards import Rewards
from tests.reward_training.pairs import write_rows
from tests.slow.reward_training.test_main_rm import pairs, words


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows") / "pairs.jsonl", pairs(60, seed=1))


def short(model: Path, rows: Path, out: Path, *more: str) -> list[str]:
    steps = ["trainer.total_training_steps=4", "trainer.test_freq=2", "gate.engines=[hf]"]
    return ["train-rm", *words(model, rows, out, *steps, "seeds=2", *more)]


def test_adapters_are_one_ensemble_on_one_engine(
    tiny_llama: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rm"
    assert main(short(tiny_llama, rows, out, "model.lora_rank=4")) == 0
    report = json.loads((out / "report.json").read_text())
    assert {"ensemble, mean", "ensemble, min", "ensemble, lower bound", "seed 1", "seed 2"} <= set(
        report["judges"]
    )
    assert 0 <= report["agreement"] <= 1
    assert set(report["gate"]["largest_difference_from_transformers"]) == {"hf, one load"}
    for seed in (1, 2):
        member = json.loads((out / f"seed_{seed}" / "report.json").read_text())
        compared = member["gate"]["largest_difference_from_transformers"]
        assert set(compared) == {"training engine", "hf", "hf, not merged"}

    section = yaml.safe_load((out / "reward.yaml").read_text())["reward"]
    specs = section["specs"]
    assert specs["rm"]["of"] == ["rm_1", "rm_2"]
    assert specs["rm_1"]["path"] == specs["rm_2"]["path"]
    config = {
        "reward": {**section, "engine": {"name": "hf", "dtype": "float32"}},
        "trainer": {"device": "cpu"},
    }
    with Rewards(config) as rewards:
        table = rewards.score(["Question 3?"], [["yes alpha", "no alpha"]])
        assert len(rewards.checked.engines) == 1
    means = np.mean([table[f"extra_rm_rm_{seed}"] for seed in (1, 2)], axis=0)
    assert np.asarray(table["score_rm"]) == pytest.approx(means, abs=1e-6)


def test_an_average_is_the_mean_of_the_weights(
    tiny_llama: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rm"
    assert main(short(tiny_llama, rows, out, "merge=average")) == 0
    folders = [out / "seed_1" / "best", out / "seed_2" / "best", out / "best"]
    first, second, average = (load_file(folder / "model.safetensors") for folder in folders)
    for name, tensor in average.items():
        assert tensor.equal((first[name] + second[name]) / 2)
    assert any(not first[name].equal(second[name]) for name in first)
    report = json.loads((out / "report.json").read_text())
    assert {"average", "seed 1", "untrained head", "longest"} <= set(report["judges"])
    assert "hf" in report["gate"]["largest_difference_from_transformers"]
    assert (out / "best" / "README.md").exists()
