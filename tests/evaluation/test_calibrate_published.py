"""A calibration on the recorded scores of a real reward model, half of the labels taken away."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.load import compose_config
from rmrl.config.schema import CalibrateConfig
from rmrl.evaluation.calibrate.check_calibration import check_calibration
from rmrl.evaluation.calibrate.run_calibrate import run_calibrate
from tests.evaluation.test_published import DATA, needs_data
from tests.inputs import read_lines


@needs_data
def test_the_corrected_share_of_qwen_maths_reward_model_holds_the_true_one(tmp_path: Path) -> None:
    draw = random.Random(1)
    hidden: list[bool] = []
    lines: list[str] = []
    for row in read_lines(DATA / "rollouts" / "qwen_math_rm8.jsonl"):
        kept: dict[str, Any] = {
            "prompt": row["question"],
            "responses": row["responses"],
            "label": row["correct"],
            "score_qwen": row["rm_scores"],
        }
        if draw.random() < 0.5:
            kept["label"] = None
            hidden += row["correct"]
        lines.append(json.dumps(kept) + "\n")
    (tmp_path / "scored.jsonl").write_text("".join(lines))
    overrides = [
        "reward.models=[qwen]",
        'reward.specs.qwen={kind: remote, url: "http://127.0.0.1:9/score"}',
        "calibrate.scored=true",
        f"data.files={tmp_path}/scored.jsonl",
        f"out={tmp_path}/out",
    ]
    config = compose_config(overrides, CalibrateConfig)
    made = run_calibrate(check_calibration(config, shipped_functions=tmp_path))["qwen"]
    measured = made.figures
    assert (measured["count"], len(hidden)) == (336, 344)
    assert measured["auc"] == pytest.approx(0.972, abs=5e-4)
    estimate = measured["without_label"]
    assert estimate["accepted"] == pytest.approx(0.866, abs=5e-4)
    assert estimate["value"] == pytest.approx(0.869, abs=5e-4)
    truth = sum(hidden) / len(hidden)
    assert truth == pytest.approx(0.913, abs=5e-4)
    assert estimate["low"] <= truth <= estimate["high"]
    # The 22 bad responses are to few problems, so that the specificity is hardly known.
    assert measured["specificity"]["independent"] < 5
    assert estimate["high"] - estimate["low"] == pytest.approx(0.381, abs=5e-4)
