"""`rmrl calibrate`: what its maps and figures are worth, and rows of csv files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from rmrl.config.load import compose_config
from rmrl.config.schema import CalibrateConfig, RewardConfig
from rmrl.evaluation.calibrate.check_calibration import check_calibration, without_calibrations
from rmrl.evaluation.calibrate.fit import curve_problem, isotonic
from rmrl.evaluation.calibrate.run_calibrate import Column, probability_map
from tests.evaluation.test_calibrate import calibrated, drawn, folder, labelled, words

__all__ = ["folder"]


@pytest.mark.parametrize(
    ("prompts", "responses", "alike"), [(400, 1, 0.0), (60, 8, 0.4)], ids=["alone", "groups"]
)
def test_the_corrected_share_holds_the_true_one_as_often_as_it_states(
    folder: Path, prompts: int, responses: int, alike: float
) -> None:
    """`alike`: correlation of the labels, and of the scores, of the responses to one prompt."""
    checked = check_calibration(
        compose_config(words(folder), CalibrateConfig), shipped_functions=folder
    )
    draw = np.random.default_rng(7)

    def responses_to(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        share_G = np.full(count, 0.5)
        if alike:
            share_G = draw.beta(0.5 * (1 / alike - 1), 0.5 * (1 / alike - 1), count)
        good_GR = draw.random((count, responses)) < share_G[:, None]
        noise_GR = draw.normal(size=(count, responses)) * (1 - alike) ** 0.5
        shared_G1 = draw.normal(size=(count, 1)) * alike**0.5
        scores_GR = (1.5 * good_GR + noise_GR + shared_G1).round(2)
        return scores_GR.ravel(), good_GR.ravel(), np.repeat(np.arange(count), responses)

    inside = 0
    for _ in range(80):
        scores_N, good_N, prompts_N = responses_to(prompts)
        judged_M, _, judged_prompts_M = responses_to(4 * prompts)
        column = Column(
            scores=scores_N.tolist(),
            good=good_N.tolist(),
            prompts=prompts_N.tolist(),
            unlabelled=judged_M.tolist(),
            unlabelled_prompts=judged_prompts_M.tolist(),
        )
        estimate = probability_map(checked, "digits", column).figures["without_label"]
        inside += estimate["low"] <= 0.5 <= estimate["high"]
    # 76 of 80 are expected, with a standard deviation of 2.
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


# --- ensembles


def ensemble_words(folder: Path, calibration: Path) -> list[str]:
    entry = f"{{kind: calibrated, file: {calibration}}}"
    return words(
        folder,
        "reward.models=[ens]",
        "reward.specs.ens={kind: ensemble, of: [digits, other]}",
        f"reward.specs.digits={{transform: {entry}}}",
    )


def ensemble_digest(folder: Path, calibration: Path) -> dict[str, str]:
    config = compose_config(ensemble_words(folder, calibration), CalibrateConfig)
    return dict(check_calibration(config, shipped_functions=folder).digests["ens"])


def test_an_ensembles_digest_has_the_content_of_its_members_calibrations(folder: Path) -> None:
    calibrated(folder)
    file = folder / "out" / "digits.json"
    first = ensemble_digest(folder, file)
    elsewhere = folder / "elsewhere.json"
    elsewhere.write_bytes(file.read_bytes())
    assert ensemble_digest(folder, elsewhere) == first
    calibrated(folder, "calibrate.method=platt")
    changed = ensemble_digest(folder, file)
    assert changed["members"] != first["members"]
    assert changed["entries"] == first["entries"]


def test_the_order_of_other_rewards_is_no_part_of_an_ensembles_digest(folder: Path) -> None:
    given = "reward.specs.ens={kind: ensemble, of: [digits, other]}"
    digests: list[dict[str, str]] = []
    for models in ("[ens,digits,other]", "[other,digits,ens]", "[ens]"):
        config = compose_config(words(folder, f"reward.models={models}", given), CalibrateConfig)
        made = check_calibration(config, shipped_functions=folder)
        digests.append(dict(made.digests["ens"]))
    assert digests[0] == digests[1] == digests[2]


def test_members_of_an_ensemble_keep_their_calibrations() -> None:
    calibration = {"kind": "calibrated", "file": "a.json"}
    reward = RewardConfig(
        models=["a", "ens"],
        specs={
            "a": {"transform": calibration},
            "ens": {"kind": "ensemble", "of": ["a", "b"], "transform": dict(calibration)},
        },
    )
    assert without_calibrations(reward)
    assert reward.specs["a"] == {"transform": calibration}
    assert reward.specs["ens"] == {"kind": "ensemble", "of": ["a", "b"]}


# --- an end between output and identity


def test_an_end_right_after_the_scores_are_in_place_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, text: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rmrl.evaluation.scored_once.write_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            calibrated(folder)
    scored = folder / "out" / "scored.jsonl"
    before = scored.stat().st_mtime_ns
    made = calibrated(folder)["digits"]
    assert made.figures["count"] == 120
    assert scored.stat().st_mtime_ns == before
