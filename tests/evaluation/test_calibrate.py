"""`rmrl calibrate` from labelled rows to a map in use: fits, figures, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from rmrl import main_eval, main_score
from rmrl.config.load import compose_config
from rmrl.config.schema import CalibrateConfig, Config, RewardConfig, ScoreConfig
from rmrl.errors import ConfigError, DataError, OutputDirError, RmrlError
from rmrl.evaluation.calibrate.calibration_tables import console
from rmrl.evaluation.calibrate.check_calibration import (
    check_calibration,
    config_problems,
    scoring_config,
    without_calibrations,
)
from rmrl.evaluation.calibrate.fit import (
    curve_problem,
    fold_curves,
    isotonic,
    label_problem,
    platt,
    unseen,
)
from rmrl.evaluation.calibrate.run_calibrate import map_files, run_calibrate
from rmrl.evaluation.labels import labelled_rows, scored_labels
from rmrl.main_calibrate import main
from rmrl.offline.check_scoring import check_scoring
from rmrl.rewards.calibration.clusters import independent_count
from rmrl.rewards.calibration.corrected import corrected_share
from rmrl.rewards.transforms.probability_map import ProbabilityMap, read_map
from tests.inputs import read_lines, rule, write_lines

DIGITS = rule('return None if "silent" in solution_str else float(solution_str)')
OTHER = DIGITS + "\n# another one\n"
FLIPPED = DIGITS.replace("float(sol", "-float(sol")


def drawn(count: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Scores from -3 to 3 and labels that they predict in part."""
    draw = np.random.default_rng(seed)
    scores_N = draw.uniform(-3, 3, count).round(2)
    good_N = draw.random(count) < 1 / (1 + np.exp(-scores_N))
    return scores_N, good_N


def labelled(count: int = 120, **columns: Any) -> list[dict[str, Any]]:
    scores_N, good_N = drawn(count)
    rows: list[dict[str, Any]] = []
    for score, good in zip(scores_N.tolist(), good_N.tolist(), strict=True):
        prompt = f"p{len(rows)}"
        row = {"prompt": prompt, "response": f"{score}", "label": good}
        rows.append(row | columns)
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "digits.py").write_text(DIGITS)
    (functions / "other.py").write_text(OTHER)
    (functions / "flipped.py").write_text(FLIPPED)
    write_lines(tmp_path / "rows.jsonl", labelled())
    return tmp_path


def words(folder: Path, *overrides: str) -> list[str]:
    models = ["reward.models=[digits]"]
    if any(text.startswith("reward.models") for text in overrides):
        models = []
    return [
        f"data.files={folder}/rows.jsonl",
        f"out={folder}/out",
        *models,
        f"reward.functions_dir={folder}/functions",
        "reward.rule_workers=1",
        "reward.max_missing=1",
        "trainer.device=cpu",
        *overrides,
    ]


def calibrated(folder: Path, *overrides: str) -> dict[str, ProbabilityMap]:
    config = compose_config(words(folder, *overrides), CalibrateConfig)
    return run_calibrate(check_calibration(config, shipped_functions=folder))


def unseen_of(scores_N: np.ndarray, good_N: np.ndarray, prompts_N: np.ndarray) -> np.ndarray:
    curves, fold_N = fold_curves("isotonic", scores_N, good_N, prompts_N, seed=1)
    return unseen(curves, fold_N, scores_N)


# --- fits against scikit-learn


@pytest.mark.parametrize("seed", range(5))
def test_an_isotonic_curve_is_that_of_scikit_learn(seed: int) -> None:
    scores_N, good_N = drawn(200, seed)
    expected = IsotonicRegression(out_of_bounds="clip").fit(scores_N, good_N)
    everywhere = np.linspace(-5, 5, 501)
    np.testing.assert_allclose(
        isotonic(scores_N, good_N).apply(everywhere), expected.predict(everywhere), atol=1e-12
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_sigmoid_is_platts_as_scikit_learn_fits_it(seed: int) -> None:
    scores_N, good_N = drawn(200, seed)
    # A classifier whose decision function is the score itself, which is then calibrated.
    identity = LogisticRegression()
    identity.classes_ = np.asarray([False, True])
    identity.coef_ = np.asarray([[1.0]])
    identity.intercept_ = np.asarray([0.0])
    expected = CalibratedClassifierCV(FrozenEstimator(identity), method="sigmoid")
    expected.fit(scores_N[:, None], good_N)
    everywhere = np.linspace(-5, 5, 101)
    # scikit-learn minimises to a gradient of 6e-5 or so.
    np.testing.assert_allclose(
        platt(scores_N, good_N).apply(everywhere),
        expected.predict_proba(everywhere[:, None])[:, 1],
        atol=2e-3,
    )


def test_a_sigmoid_stays_finite_where_a_score_separates_the_labels() -> None:
    scores_N = np.repeat([0.0, 1.0], 30)
    made = platt(scores_N, scores_N > 0)
    # Platt's targets: 31/32 and 1/32.
    np.testing.assert_allclose(made.apply(np.asarray([0.0, 1.0])), [1 / 32, 31 / 32], atol=1e-4)


def test_unseen_probabilities_are_of_a_fit_without_the_row() -> None:
    # A label that only one score has: a fit with the row gives it its own label.
    scores_N = np.arange(60, dtype=np.float64)
    good_N = scores_N >= 30
    good_N[29] = True
    good_N[30] = False
    seen = isotonic(scores_N, good_N).apply(scores_N)
    assert seen[0] == 0.0
    assert 0 < seen[29] < 1
    other = unseen_of(scores_N, good_N, prompts_N=np.arange(60))
    assert ((other - good_N) ** 2).mean() > ((seen - good_N) ** 2).mean()
    again = unseen_of(scores_N, good_N, prompts_N=np.arange(60))
    np.testing.assert_array_equal(other, again)


def test_the_responses_to_a_prompt_are_in_one_fold() -> None:
    scores_N, good_N = drawn(120)
    prompts_N = np.repeat(np.arange(30), 4)
    _, fold_N = fold_curves("isotonic", scores_N, good_N, prompts_N, seed=1)
    assert (fold_N.reshape(30, 4) == fold_N[::4, None]).all()
    assert set(fold_N) == set(range(5))


def test_folds_split_a_prompt_that_has_all_responses_of_a_label() -> None:
    scores_N, good_N = drawn(120)
    curves, fold_N = fold_curves("platt", scores_N, good_N, np.where(good_N, 0, 1), seed=1)
    assert (len(curves), set(fold_N)) == (5, set(range(5)))


# --- refusals


@pytest.mark.parametrize(
    ("good", "bad", "sentence"),
    [(20, 20, "saw 40 labels; need at least 50"), (60, 0, "60 good and 0 bad"), (57, 3, "3 bad")],
)
def test_too_few_labels_are_refused(good: int, bad: int, sentence: str) -> None:
    assert sentence in label_problem(np.repeat([True, False], [good, bad]))


def test_fifty_labels_with_five_of_each_are_enough() -> None:
    assert label_problem(np.repeat([True, False], [45, 5])) == ""


@pytest.mark.parametrize("fit", [isotonic, platt])
def test_a_map_that_would_fall_is_refused(fit: Any) -> None:
    scores_N, good_N = drawn(200)
    assert curve_problem(fit(scores_N, good_N), scores_N, good_N) == ""
    assert "higher scores are not better" in curve_problem(
        fit(-scores_N, good_N), -scores_N, good_N
    )
    level_N = np.full(200, 2.0)
    assert "all scores are 2" in curve_problem(fit(level_N, good_N), level_N, good_N)


# --- rows


def test_labels_of_all_spellings(tmp_path: Path) -> None:
    typed = [True, 0, "true", "0", None, "", 1.0]
    rows = [{"about": {"good": value}} for value in typed]
    write_lines(tmp_path / "rows.jsonl", [*rows, {"about": {}}, {"about": {"good": [True, None]}}])
    made = [labels for _, _, labels in labelled_rows(tmp_path / "rows.jsonl", "about.good", None)]
    assert made == [
        (True,), (False,), (True,), (False,), (None,), (None,), (True,), (None,), (True, None),
    ]  # fmt: skip
    marks = write_lines(tmp_path / "marks.jsonl", [{"label": 4}, {"label": "3.5"}, {"label": None}])
    assert [labels for *_, labels in labelled_rows(marks, "label", 4.0)] == [
        (True,), (False,), (None,),
    ]  # fmt: skip
    assert len(list(labelled_rows(marks, "label", 4.0, max_rows=1))) == 1
    with pytest.raises(DataError, match=r"marks.jsonl row 0.*saw 4; need true or false.*good_from"):
        list(labelled_rows(marks, "label", None))


def test_scores_and_labels_of_a_row() -> None:
    row = {"score_a": [1.0, None], "score_b": "0.5", "score_c": "high"}
    assert scored_labels(row, "a", (True, False), place="x") == [(1.0, True), (None, False)]
    assert scored_labels(row, "a", (None,), place="x") == [(1.0, None), (None, None)]
    assert scored_labels(row, "b", (True,), place="x") == [(0.5, True)]
    for name, sentence in (("c", "need a number"), ("d", "need 'score_d'"), ("a", "2 scores")):
        with pytest.raises(DataError, match=sentence):
            scored_labels(row, name, (True,), place="x")


# --- the command


def test_rows_are_scored_and_a_map_with_its_figures_is_written(folder: Path) -> None:
    made = calibrated(folder)["digits"]
    assert read_map(str(folder / "out" / "digits.json")) == made
    scores_N, good_N = drawn(120)
    expected = IsotonicRegression(out_of_bounds="clip").fit(scores_N, good_N)
    np.testing.assert_allclose(made.curve.apply(scores_N), expected.predict(scores_N), atol=1e-9)
    measured = made.figures
    assert (measured["count"], measured["good"], measured["missing"]) == (120, good_N.sum(), 0)
    assert made.threshold == pytest.approx(good_N.mean())
    assert measured["before"] is None  # scores from -3 to 3 are no probabilities
    unseen_N = unseen_of(scores_N, good_N, prompts_N=np.arange(120))
    assert measured["after"]["brier"] == pytest.approx(((unseen_N - good_N) ** 2).mean())
    assert measured["after"]["brier"] < measured["base_brier"]
    accepted_N = unseen_N >= good_N.mean()
    assert (accepted_N != (made.curve.apply(scores_N) >= good_N.mean())).any()
    assert measured["sensitivity"]["value"] == pytest.approx(accepted_N[good_N].mean())
    assert measured["specificity"]["value"] == pytest.approx((~accepted_N[~good_N]).mean())
    assert (folder / "out" / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"^digits +120 +\d", console({"digits": made}), flags=re.MULTILINE)


def test_the_same_command_scores_nothing_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calibrated(folder)
    scored = (folder / "out" / "scored.jsonl").stat().st_mtime_ns
    made = calibrated(folder, "calibrate.method=platt")["digits"]
    assert made.curve.slope > 0
    assert (folder / "out" / "scored.jsonl").stat().st_mtime_ns == scored
    assert any("holds the scores of this evaluation already" in line for line in caplog.messages)
    with pytest.raises(OutputDirError, match="scores of another evaluation"):
        calibrated(folder, "reward.models=[other]")


def test_scored_rows_give_the_same_map_without_scoring(folder: Path) -> None:
    first = calibrated(folder)["digits"]
    scored = folder / "out" / "scored.jsonl"
    again = calibrated(
        folder, f"data.files={scored}", f"out={folder}/again", "calibrate.scored=true"
    )
    assert again["digits"] == first
    assert not (folder / "again" / "scored.jsonl").exists()


def test_scored_rows_say_where_their_prompts_are(folder: Path) -> None:
    rows = labelled()
    for number, row in enumerate(rows):
        row["question"] = f"p{number // 4}"
        del row["prompt"]
    write_lines(folder / "rows.jsonl", rows)
    first = calibrated(folder, "data.columns.prompt=question")["digits"]
    scored = folder / "out" / "scored.jsonl"
    again = calibrated(
        folder, f"data.files={scored}", f"out={folder}/again", "calibrate.scored=true"
    )
    assert again["digits"] == first


def test_rows_without_a_label_get_a_corrected_share(folder: Path) -> None:
    rows = labelled()
    further = labelled(label=None)[:60]
    write_lines(folder / "rows.jsonl", [*rows, *further])
    measured = calibrated(folder)["digits"].figures
    assert measured["count"] == 120
    estimate = measured["without_label"]
    assert estimate["count"] == 60
    assert estimate["low"] <= estimate["value"] <= estimate["high"]
    _, good_N = drawn(120)
    assert estimate["low"] <= good_N[:60].mean() <= estimate["high"]


def test_several_responses_to_a_prompt_count_as_the_fewer_that_they_tell_as_much_as(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Four copies of each row say what one says: the intervals are those of 120 rows."""
    once = calibrated(folder)["digits"].figures
    write_lines(folder / "rows.jsonl", np.repeat(labelled(), 4).tolist())
    four = calibrated(folder, f"out={folder}/four")["digits"].figures
    assert four["count"] == 480
    for rate in ("sensitivity", "specificity"):
        assert four[rate]["independent"] == pytest.approx(once[rate]["count"], rel=0.05)
        width = once[rate]["high"] - once[rate]["low"]
        assert four[rate]["high"] - four[rate]["low"] == pytest.approx(width, rel=0.1)
    assert any("label responses to more prompts" in line for line in caplog.messages)


def test_independent_responses_are_counted_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counting(values_N: np.ndarray, prompts_N: np.ndarray) -> float:
        calls.append(len(values_N))
        return independent_count(values_N, prompts_N)

    for module in ("calibrate.fit", "measures.shares"):
        name = f"rmrl.evaluation.{module}.independent_count"
        monkeypatch.setattr(name, counting, raising=False)
    write_lines(folder / "rows.jsonl", np.repeat(labelled(), 4).tolist())
    fitted = calibrated(folder)["digits"]
    assert sum(calls) == 480  # the good rows and the bad ones, once each
    assert fitted.verdicts.good_independent == fitted.figures["sensitivity"]["independent"]
    assert fitted.verdicts.bad_independent == fitted.figures["specificity"]["independent"]


def test_some_of_the_rows_are_scored_and_fitted(folder: Path) -> None:
    assert calibrated(folder, "data.sample=60")["digits"].figures["count"] == 60
    with pytest.raises(ConfigError, match=r"data\.sample draws rows that are scored now"):
        calibrated(folder, "data.sample=60", "calibrate.scored=true")


def test_bad_rows_can_be_sorted_out(folder: Path) -> None:
    with (folder / "rows.jsonl").open("a") as file:
        file.write("no JSON\n")
    with pytest.raises(DataError, match=r"rows\.jsonl"):
        calibrated(folder)
    made = calibrated(folder, "data.on_bad_row=quarantine")["digits"]
    assert made.figures["count"] == 120


def test_a_missing_verdict_is_counted_and_not_fitted(folder: Path) -> None:
    rows = labelled()
    rows[0]["response"] = "silent"
    write_lines(folder / "rows.jsonl", rows)
    measured = calibrated(folder)["digits"].figures
    assert (measured["count"], measured["missing"]) == (119, 1)


def test_a_reward_that_cannot_be_calibrated_leaves_the_others(folder: Path) -> None:
    with pytest.raises(DataError, match="'flipped' cannot be calibrated: the map would fall"):
        calibrated(folder, "reward.models=[digits,flipped]")
    assert (folder / "out" / "digits.json").is_file()
    assert not (folder / "out" / "flipped.json").exists()


MISTAKES: dict[str, tuple[list[str], type[RmrlError], str]] = {
    "nothing given": (["data.files=null", "out=null"], ConfigError, "2 problems"),
    "a threshold": (["calibrate.threshold=1.5"], ConfigError, "calibrate.threshold=1.5"),
    "a method": (["calibrate.method=isotnic"], ConfigError, "did you mean 'isotonic'"),
    "no labels": (["calibrate.label=lable"], DataError, "calibrate.label=... of prompt, response"),
    "few labels": (["data.max_rows=49"], DataError, "saw 49 labels; need at least 50"),
    "labels of some responses": (
        ["data.files={folder}/several.jsonl"],
        DataError,
        "saw 1 labels for 2 responses",
    ),
    "a reward": (["reward.models=[digit]"], ConfigError, "did you mean 'digits'"),
    "a scored reward": (
        ["reward.models=[digit]", "calibrate.scored=true"],
        ConfigError,
        "did you mean 'digits'",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_sentences_before_anything_is_scored(folder: Path, name: str) -> None:
    overrides, error, sentence = MISTAKES[name]
    write_lines(folder / "several.jsonl", [{"prompt": "p", "responses": ["1", "2"], "label": True}])
    given = [text.format(folder=folder) for text in overrides]
    config = compose_config(words(folder, *given), CalibrateConfig)
    with pytest.raises(error, match=re.escape(sentence)):
        check_calibration(config, shipped_functions=folder)
    assert not (folder / "out").exists()


def test_scored_rows_without_the_rewards_column_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="need 'score_digits', as rmrl score writes it"):
        calibrated(folder, "calibrate.scored=true")


def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(folder)) == 0
    printed = capsys.readouterr()
    assert "digits" in printed.out
    assert f"wrote {folder}/out/digits.json" in printed.err
    assert main(words(folder, "calibrate.lable=good")) == 2
    assert "did you mean 'label'" in capsys.readouterr().err
    assert main(words(folder, "data.max_rows=10")) == 6


def test_files_of_rewards_named_like_paths() -> None:
    assert map_files(["a", "x/a b", "x-a-b", "../"]) == {
        "a": "a.json", "x/a b": "x-a-b.json", "x-a-b": "x-a-b#2.json", "../": "reward.json",
    }  # fmt: skip


def test_problems_of_the_configuration_alone() -> None:
    config = compose_config(["calibrate.label=''"], CalibrateConfig)
    starts = ["data.files is empty", "out is empty", "calibrate.label is empty"]
    problems = list(config_problems(config))
    assert len(problems) == 3
    for problem, start in zip(problems, starts, strict=True):
        assert problem.startswith(start)


def test_the_scoring_keeps_rewards_and_budgets() -> None:
    config = compose_config(["reward.models=[a]", "over_budget=fail"], CalibrateConfig)
    made = scoring_config(config, config.reward, Path("x/scored.jsonl"))
    assert made.out == "x/scored.jsonl"
    assert (made.reward.models, made.over_budget) == (["a"], "fail")


# --- the map in use


def use(folder: Path, name: str = "digits") -> str:
    entry = f"{{kind: calibrated, file: {folder}/out/digits.json}}"
    return f"reward.specs.{name}.transform={entry}"


def scoring(folder: Path, *overrides: str) -> list[str]:
    return [*words(folder, *overrides), f"out={folder}/used.jsonl"]


def test_the_map_turns_scores_into_probabilities(folder: Path) -> None:
    made = calibrated(folder)["digits"]
    assert main_score.main(scoring(folder, use(folder))) == 0
    rows = read_lines(folder / "used.jsonl")
    scores_N, _ = drawn(120)
    assert [row["score_digits"] for row in rows] == scores_N.tolist()
    np.testing.assert_allclose([row["reward"] for row in rows], made.curve.apply(scores_N))


def test_a_map_of_another_reward_is_refused_everywhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rmrl import main_check, main_ppo

    calibrated(folder)
    other = ["reward.models=[other]", use(folder, "other")]
    sentence = "was made for other scores, those of 'digits'; what differs: the code of"
    pairs = write_lines(folder / "pairs.jsonl", [{"prompt": "p", "chosen": "1", "rejected": "2"}])
    commands = {
        main_score.main: scoring(folder, *other),
        main_check.main: words(folder, *other),
        main_eval.main: [
            *words(folder, *other), f"data.files={pairs}", "eval.format=pairs",
            f"out={folder}/eval",
        ],
        main_ppo.main: [
            "trainer.device=cpu", f"data.train_files={folder}/rows.jsonl",
            "actor_rollout_ref.model.path=.", f"reward.functions_dir={folder}/functions", *other,
        ],
    }  # fmt: skip
    for command, given in commands.items():
        assert command(given) == 2
        printed = capsys.readouterr().err
        assert sentence in printed, command
        assert "rmrl calibrate with the same section reward" in printed


def test_an_evaluation_tries_the_map_on_labels_it_has_not_seen(folder: Path) -> None:
    made = calibrated(folder)["digits"]
    scores_N, good_N = drawn(200, seed=11)
    rows: list[dict[str, Any]] = []
    for score, good in zip(scores_N.tolist(), good_N.tolist(), strict=True):
        rows.append({"prompt": f"p{len(rows)}", "response": f"{score}", "value": good})
    write_lines(folder / "other.jsonl", rows)
    given = [
        *words(folder, use(folder)), f"data.files={folder}/other.jsonl", "eval.format=absolute",
        f"out={folder}/eval",
    ]  # fmt: skip
    assert main_eval.main(given) == 0
    report = json.loads((folder / "eval" / "report.json").read_text())
    numbers = report["judges"]["digits"]["calibrated"]
    probabilities_N = made.curve.apply(scores_N)
    assert numbers["calibration"]["brier"] == pytest.approx(
        ((probabilities_N - good_N) ** 2).mean()
    )
    assert numbers["good"]["value"] == pytest.approx(good_N.mean())
    accepted = made.accepted(scores_N).sum()
    assert numbers["corrected"]["value"] == corrected_share(accepted, 200, made.verdicts).value
    assert numbers["corrected"]["low"] <= good_N.mean() <= numbers["corrected"]["high"]


def test_a_map_behind_another_transform_is_refused(folder: Path) -> None:
    calibrated(folder)
    entry = f"[sigmoid, {{kind: calibrated, file: {folder}/out/digits.json}}]"
    config = compose_config(scoring(folder, f"reward.specs.digits.transform={entry}"), ScoreConfig)
    with pytest.raises(ConfigError, match=r"is transform 2.*put it first"):
        check_scoring(config, shipped_functions=folder)


def test_a_file_that_is_no_map_is_refused_with_its_key(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "digits.json").write_text("{}")
    config = compose_config(scoring(folder, use(folder)), ScoreConfig)
    with pytest.raises(ConfigError, match=r"reward.specs.digits.transform.file: .* no calibration"):
        check_scoring(config, shipped_functions=folder)


def test_a_new_map_makes_another_job(folder: Path) -> None:
    calibrated(folder)
    from rmrl.offline.identity import identity_of, what_differs

    config = compose_config(scoring(folder, use(folder)), ScoreConfig)
    before = identity_of(check_scoring(config, shipped_functions=folder))
    calibrated(folder, "calibrate.method=platt")
    after = identity_of(check_scoring(config, shipped_functions=folder))
    assert what_differs(before, after) == [
        "reward 'digits': its code or its model was another one there, or a file of it"
    ]


def test_calibrating_again_leaves_the_old_map_out(folder: Path) -> None:
    first = calibrated(folder)["digits"]
    (folder / "functions" / "digits.py").write_text(OTHER)
    again = calibrated(folder, use(folder), "overwrite=true")["digits"]
    assert again.curve == first.curve
    assert again.digest["code"] != first.digest["code"]


def test_only_calibrations_are_left_out() -> None:
    sigmoid = {"kind": "sigmoid"}
    reward = RewardConfig(
        models=["a", "b", "c"],
        specs={
            "a": {"transform": [{"kind": "calibrated"}, sigmoid]},
            "b": {"transform": "sigmoid"},
        },
        transforms={"c": {"kind": "calibrated"}, "of an ensemble": {"kind": "calibrated"}},
    )
    assert without_calibrations(reward)
    assert reward.specs == {"a": {"transform": [sigmoid]}, "b": {"transform": "sigmoid"}}
    assert reward.transforms == {"of an ensemble": {"kind": "calibrated"}}
    assert not without_calibrations(reward)


def test_training_reads_the_same_section(folder: Path) -> None:
    assert compose_config([use(folder)], Config).reward.specs["digits"]["transform"]["kind"] == (
        "calibrated"
    )
