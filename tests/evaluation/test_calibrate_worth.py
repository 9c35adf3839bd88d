"""`rmrl calibrate`: what its maps and figures are worth, and rows of csv files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from rmrl.config.load import compose_config
from rmrl.config.schema import CalibrateConfig
from rmrl.evaluation.calibrate.check import check_calibration
from rmrl.evaluation.calibrate.fit import curve_problem, isotonic
from rmrl.evaluation.calibrate.run import Column, probability_map
from tests.evaluation.test_calibrate import calibrated, drawn, folder, labelled, words

__all__ = ["folder"]


def test_the_corrected_share_holds_the_true_one_as_often_as_it_states(folder: Path) -> None:
    checked = check_calibration(
        compose_config(words(folder), CalibrateConfig), shipped_functions=folder
    )
    draw = np.random.default_rng(7)
    share = 0.5
    inside = 0
    for _ in range(80):
        good_N = draw.random(400) < share
        scores_N = draw.normal(1.5 * good_N, 1).round(2)
        judged_N = draw.normal(1.5 * (draw.random(2000) < share), 1)
        column = Column(
            scores=scores_N.tolist(), good=good_N.tolist(), unlabelled=judged_N.tolist()
        )
        estimate = probability_map(checked, "digits", column).figures["without_label"]
        inside += estimate["low"] <= share <= estimate["high"]
    # 76 of 80 are expected, with a standard deviation of 2; with the verdicts of the folds 63.
    assert inside >= 72


def test_labels_in_a_column_of_a_csv_file_are_read(folder: Path) -> None:
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "response", "extra_info"])
        for row in labelled():
            writer.writerow(["p", row["response"], json.dumps({"Label": row["label"]})])
    given = [f"data.files={folder}/rows.csv", "calibrate.label=extra_info.Label"]
    made = calibrated(folder, *given)["digits"]
    assert made.figures["count"] == 120
    assert made.figures["good"] == drawn(120)[1].sum()


def test_a_reversed_reward_is_refused_though_its_highest_score_is_a_good_one() -> None:
    scores_N, good_N = drawn(200)
    reversed_N = np.append(-scores_N, 9.0)
    good_N = np.append(good_N, [True])
    fitted = isotonic(reversed_N, good_N)
    assert fitted.points[-1][1] > fitted.points[0][1]
    assert "higher scores are not better" in curve_problem(fitted, reversed_N, good_N)
