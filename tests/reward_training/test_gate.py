"""What the gate allows, by figures that are worked out by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from rmrl.config.schema import (
    FSDPConfig,
    GateConfig,
    ModelConfig,
    RewardDataConfig,
    RewardTrainerConfig,
    RewardTrainingConfig,
)
from rmrl.reward_training.check_reward_training import CheckedRewardTraining, check
from rmrl.reward_training.gate import GateError, compare_engines, gate_items
from rmrl.reward_training.plain_scores import PlainScores, plain_scores
from rmrl.reward_training.training import BEST, State
from tests.reward_training.pairs import write_rows

SCORES = [[[2.0], [-1.0]], [[0.5], [1.5]]]
"""Two held-out pairs."""


@pytest.fixture
def checked(tiny_llama: Path, tmp_path: Path) -> CheckedRewardTraining:
    rows = [
        {"prompt": f"Question {number}?", "chosen": "yes", "rejected": "no"} for number in range(4)
    ]
    return check(
        RewardTrainingConfig(
            data=RewardDataConfig(
                train_files=str(write_rows(tmp_path / "train.jsonl", rows[:2])),
                val_files=str(write_rows(tmp_path / "test.jsonl", rows[2:])),
                train_batch_size=2,
            ),
            model=ModelConfig(path=str(tiny_llama)),
            fsdp_config=FSDPConfig(param_dtype="bfloat16"),
            gate=GateConfig(engines=[]),
            trainer=RewardTrainerConfig(device="cpu"),
            out=str(tmp_path / "out"),
        )
    )


def moved(by: float) -> list[list[list[float]]]:
    (first, *rest), *others = SCORES
    return [[[first[0] + by], *rest], *others]


def compared(
    checked: CheckedRewardTraining, *, training: float, rounded: float | None
) -> dict[str, Any]:
    """The report where training engine and half precision differ by so much from transformers."""
    plain = PlainScores(
        outputs=SCORES, rounded=None if rounded is None else moved(rounded), lost=[]
    )
    report: dict[str, Any] = {}
    asyncio.run(compare_engines(checked, State(best=moved(training)), plain, report))
    return report["gate"]


def test_half_precision_may_differ_by_three_times_what_it_rounds_in_transformers(
    checked: CheckedRewardTraining,
) -> None:
    """A model with 16 layers, trained in the default bfloat16, rounded by .087, where its largest
    score was 3.3: two hundredths are .066."""
    gate = compared(checked, training=0.25, rounded=0.087)
    assert gate["tolerance"] == pytest.approx(3 * 0.087)
    assert gate["largest_difference_from_transformers"] == {
        "training engine": pytest.approx(0.25),
        "transformers, half precision": pytest.approx(0.087),
    }
    # Two hundredths of the largest score, 2.
    assert compared(checked, training=0.03, rounded=0.001)["tolerance"] == pytest.approx(0.04)
    assert compared(checked, training=0.03, rounded=None)["rounding"] == 0


def test_more_than_that_is_an_error_that_names_the_head(checked: CheckedRewardTraining) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(
        checked.config.model.path, num_labels=1
    )
    model.save_pretrained(checked.out / BEST)
    with pytest.raises(GateError, match=r"training engine by 0\.27, .*score\.weight \[1, "):
        compared(checked, training=0.27, rounded=0.087)
    with pytest.raises(GateError, match=r"training engine by 0\.05"):
        compared(checked, training=0.05, rounded=0.001)
    strict = replace(
        checked, config=replace(checked.config, gate=GateConfig(engines=[], tolerance=0.01))
    )
    with pytest.raises(GateError, match=r"where 0\.01 is allowed"):
        compared(strict, training=0.02, rounded=0.005)


def test_plain_scores_are_in_float32_with_the_files_own_precision_beside(
    checked: CheckedRewardTraining, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model: Any = AutoModelForSequenceClassification.from_pretrained(
        checked.config.model.path, num_labels=1
    )
    items = gate_items(checked)
    reading = checked.objective.reading
    model.bfloat16().save_pretrained(tmp_path / "half")
    half = plain_scores(str(tmp_path / "half"), items, reading, device="cpu")
    model.float().save_pretrained(tmp_path / "single")
    single = plain_scores(str(tmp_path / "single"), items, reading, device="cpu")
    assert single.rounded is None
    np.testing.assert_allclose(half.outputs, single.outputs, atol=1e-6)
    assert half.rounded is not None
    difference = np.abs(np.asarray(half.rounded) - np.asarray(half.outputs)).max()
    assert 1e-5 < difference < 0.05
