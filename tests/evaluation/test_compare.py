"""`rmrl compare` on rules: numbers by hand and against scikit-learn and scipy, refusals, the
report."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr
from sklearn.metrics import accuracy_score, cohen_kappa_score, roc_auc_score

from rmrl.commands.compare import sorted_arguments
from rmrl.config.load import compose_config
from rmrl.config.schema import CompareConfig, RewardConfig
from rmrl.config.section import read_section
from rmrl.errors import ConfigError, DataError, OutputDirError, RmrlError
from rmrl.evaluation.compare.agreement import groups, overall, places, within_prompts
from rmrl.evaluation.compare.check_comparison import (
    check_comparison,
    config_problems,
    scoring_config,
    share_cache,
)
from rmrl.evaluation.compare.comparison_tables import console, visible
from rmrl.evaluation.compare.difference import accuracy, best, by_prompt, difference, mean, pairs
from rmrl.evaluation.compare.flips import most_disputed, scores_at, short
from rmrl.evaluation.compare.plot import draw
from rmrl.evaluation.compare.responses import Responses, read_responses
from rmrl.evaluation.compare.run_compare import chosen_figure, run_compare
from rmrl.main_compare import main
from tests.inputs import rule, write_lines

LENGTH = rule('return None if "silent" in solution_str else float(len(solution_str))')
VOWELS = rule('return float(sum(letter in "aeiou" for letter in solution_str))')
ROWS = [
    {"prompt": "p", "responses": ["aaaa", "bbbbbb", "a"], "good": [True, False, False]},
    {"prompt": "q", "responses": ["eeexx", "bb", "silent"], "good": [True, False, None]},
    {"prompt": "r", "responses": ["a\x1b[31mb", "ooo"], "good": [False, True]},
]


def responses(
    first: list[float], second: list[float], prompts: list[int], good: list[float] | None = None
) -> Responses:
    labels = [np.nan] * len(first)
    if good is not None:
        labels = good
    return Responses(
        rewards_AN=np.asarray([first, second], dtype=np.float64),
        prompt_N=np.asarray(prompts),
        good_N=np.asarray(labels, dtype=np.float64),
        row_N=np.arange(len(first)),
        place_N=np.zeros(len(first), dtype=np.int64),
    )


def drawn(seed: int, *, prompts: int = 40, size: int = 4, values: int = 100) -> Responses:
    draw_ = np.random.default_rng(seed)
    count = prompts * size
    first = draw_.integers(0, values, count)
    second = np.where(draw_.random(count) < 0.5, first, draw_.integers(0, values, count))
    good = (draw_.random(count) < first / values).astype(float)
    return responses(
        first.tolist(), second.tolist(), np.repeat(np.arange(prompts), size).tolist(), good.tolist()
    )


# --- agreement


@pytest.mark.parametrize("seed", range(5))
def test_agreement_is_that_of_scipy_and_scikit_learn(seed: int) -> None:
    made = drawn(seed, values=3)
    first, second = made.rewards_AN
    figures = overall(made)
    assert figures["count"] == 160
    assert figures["pearson"] == pytest.approx(pearsonr(first, second).statistic)
    assert figures["spearman"] == pytest.approx(spearmanr(first, second).statistic)
    assert figures["kendall"] == pytest.approx(kendalltau(first, second).statistic)
    assert figures["kappa"] == pytest.approx(
        cohen_kappa_score(first.astype(int), second.astype(int))
    )
    assert figures["equal"] == pytest.approx(accuracy_score(first, second))
    assert overall(drawn(seed))["kappa"] is None
    assert overall(drawn(seed, prompts=2, values=3))["kappa"] is None


def test_order_within_prompts_by_hand() -> None:
    # Prompt 0: 1 < 2 < 3 against 1 < 3 > 2; prompt 1: 5 > 4 against a tie; prompt 2 has one.
    made = responses([1, 2, 3, 5, 4, 9], [1, 3, 2, 7, 7, 9], [0, 0, 0, 1, 1, 2])
    assert [positions.tolist() for positions in groups(made)] == [[0, 1, 2], [3, 4]]
    assert within_prompts(made) == {
        "prompts": 2,
        "pairs": 4,
        "same": 2,
        "opposite": 1,
        "tied": 1,
        "tied_in_both": 0,
        "same_share": 0.5,
        "same_best": 0.5,  # 3 is no longer first in prompt 0; the tie of prompt 1 includes its first
        "moved": 0.8,  # all but the lowest of prompt 0
        "mean_move": pytest.approx((0 + 1 + 1 + 0.5 + 0.5) / 5),
    }
    assert within_prompts(responses([1, 2], [1, 2], [0, 1])) is None


@pytest.mark.parametrize("seed", range(5))
def test_order_within_prompts_against_counting_every_pair(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a prompt's pairs do not fit into memory at once."""
    monkeypatch.setattr("rmrl.evaluation.compare.agreement.CELLS", [7, 20, 45, 1000, 10**7][seed])
    made = drawn(seed, values=6)
    first, second = made.rewards_AN
    same = opposite = both = pairs_ = 0
    for i in range(len(made)):
        for j in range(i):
            if made.prompt_N[i] != made.prompt_N[j]:
                continue
            pairs_ += 1
            product = (first[i] - first[j]) * (second[i] - second[j])
            same += product > 0
            opposite += product < 0
            both += first[i] == first[j] and second[i] == second[j]
    figures = within_prompts(made)
    assert figures is not None
    assert (figures["pairs"], figures["same"], figures["opposite"]) == (pairs_, same, opposite)
    assert figures["tied_in_both"] == both
    assert figures["same_share"] == pytest.approx(same / (pairs_ - both))


def test_places_are_from_0_to_1_and_ties_share() -> None:
    assert places(np.asarray([3.0, 7.0, 7.0, 9.0])).tolist() == [0, 0.5, 0.5, 1]
    assert places(np.asarray([3.0])).tolist() == [0.5]


# --- figures and their difference


def test_pairs_within_one_prompt_are_the_area_under_the_roc_curve() -> None:
    made = drawn(1, prompts=1, size=80)
    sums_AP, counts_P = by_prompt(pairs(made, 0.0))
    for a in range(2):
        assert sums_AP[a, 0] / counts_P[0] == pytest.approx(
            roc_auc_score(made.good_N, made.rewards_AN[a])
        )


def test_accuracy_is_that_of_scikit_learn() -> None:
    made = drawn(2)
    sums_AP, counts_P = by_prompt(accuracy(made, 50.0))
    for a in range(2):
        assert sums_AP[a].sum() / counts_P.sum() == pytest.approx(
            accuracy_score(made.good_N == 1, made.rewards_AN[a] >= 50)
        )


def test_figures_by_hand() -> None:
    made = responses(
        [3, 1, 2, 5, 5, 0], [1, 3, 2, 5, 4, 0], [0, 0, 0, 1, 1, 2], [1, 0, 0, 1, 0, np.nan]
    )
    sums_AP, counts_P = by_prompt(pairs(made, 0.0))
    # Prompt 0: both bad ones are below, then none; prompt 1: a tie, then below.
    assert sums_AP.tolist() == [[2, 0.5], [0, 1]]
    assert counts_P.tolist() == [2, 1]
    sums_AP, counts_P = by_prompt(best(made, 0.0))
    assert sums_AP.tolist() == [[1, 0.5], [0, 1]]
    assert counts_P.tolist() == [1, 1]
    sums_AP, counts_P = by_prompt(accuracy(made, 2.0))
    assert sums_AP.tolist() == [[2, 1], [0, 1]]
    assert counts_P.tolist() == [3, 2]
    sums_AP, counts_P = by_prompt(mean(made, 0.0))
    assert sums_AP.tolist() == [[6, 10, 0], [6, 9, 0]]
    assert counts_P.tolist() == [3, 2, 1]


def test_the_figure_follows_from_the_labels() -> None:
    assert chosen_figure(drawn(1)) == "pairs"
    assert chosen_figure(responses([1, 2], [1, 2], [0, 1], [1, 0])) == "accuracy"
    assert chosen_figure(responses([1, 2], [1, 2], [0, 0])) == "mean"
    # Two of four, then two of five labelled responses are to a prompt with a good and a bad one.
    four = responses([1, 2, 3, 4], [1, 2, 3, 4], [0, 0, 1, 2], [1, 0, 1, 1])
    assert chosen_figure(four) == "pairs"
    five = responses([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [0, 0, 1, 2, 3], [1, 0, 1, 1, 0])
    assert chosen_figure(five) == "accuracy"


def test_a_difference_has_a_paired_interval() -> None:
    draw_ = np.random.default_rng(5)
    first = draw_.normal(0, 10, 400)
    second = first + 0.5 + draw_.normal(0, 1, 400)
    made = responses(first.tolist(), second.tolist(), list(range(400)))
    tested = difference(mean(made, 0.0), resamples=2000, confidence=0.95, seed=1)
    assert tested is not None
    change = second - first
    assert tested["difference"] == pytest.approx(change.mean())
    assert tested["values"] == [pytest.approx(first.mean()), pytest.approx(second.mean())]
    # Paired: the spread of the change counts (1), not that of the rewards (10).
    half = 1.96 * change.std() / 20
    assert tested["low"] == pytest.approx(change.mean() - half, abs=0.02)
    assert tested["high"] == pytest.approx(change.mean() + half, abs=0.02)
    assert tested["above"] == 1.0
    assert tested == difference(mean(made, 0.0), resamples=2000, confidence=0.95, seed=1)


def test_prompts_are_drawn_and_not_responses() -> None:
    # Ten prompts of 100 equal responses: ten observations, however many responses.
    change = np.random.default_rng(6).normal(0, 1, 10)
    made = responses(
        [0.0] * 1000, np.repeat(change, 100).tolist(), np.repeat(range(10), 100).tolist()
    )
    tested = difference(mean(made, 0.0), resamples=2000, confidence=0.95, seed=1)
    assert tested is not None
    half = 1.96 * change.std() / np.sqrt(10)
    assert (tested["high"] - tested["low"]) / 2 == pytest.approx(half, rel=0.15)


def test_the_terms_of_a_prompt_are_drawn_with_their_number() -> None:
    # Every response gains 1, in prompts of 1 to 20 responses: so does every resample.
    prompts = np.repeat(np.arange(20), np.arange(1, 21))
    made = responses([0.0] * 210, [1.0] * 210, prompts.tolist())
    tested = difference(mean(made, 0.0), resamples=200, confidence=0.95, seed=1)
    assert tested is not None
    assert (tested["low"], tested["high"]) == (pytest.approx(1), pytest.approx(1))


def test_equal_rewards_and_too_few_prompts_have_a_plain_answer() -> None:
    made = responses([1, 2, 3], [1, 2, 3], [0, 1, 2])
    tested = difference(mean(made, 0.0), resamples=100, confidence=0.95, seed=1)
    assert tested is not None
    assert (tested["difference"], tested["low"], tested["high"], tested["above"]) == (0, 0, 0, 0.5)
    one = difference(mean(responses([1], [2], [0]), 0.0), resamples=9, confidence=0.9, seed=1)
    assert one is not None
    assert (one["difference"], one["low"]) == (1, None)
    assert difference(pairs(made, 0.0), resamples=9, confidence=0.9, seed=1) is None


# --- what is listed


def test_the_most_disputed_come_first() -> None:
    made = responses([1, 2, 3, 4], [4, 2, 3, 1], [0, 1, 2, 3])
    positions, change = most_disputed(made, 9)
    assert positions.tolist() == [0, 3]
    assert change.tolist() == [1, -1]
    assert most_disputed(made, 1)[0].tolist() == [0]


def test_texts_are_short_and_harmless() -> None:
    assert short("abcdefgh", 8) == "abcdefgh"
    assert short("abcdefgh", 4) == "ab [... 4 characters ...] gh"
    assert visible("a\nb\x1b[31m\u202e") == "a\\nb\ufffd[31m\ufffd"


def test_scores_of_one_response_of_a_row() -> None:
    row = {"reward": [1.0, 2.0], "score_a": [3.0, 4.0], "status_a": ["ok", "ok"], "prompt": "p"}
    assert scores_at(row, 1, ["a"]) == {"reward": 2.0, "score_a": 4.0, "status_a": "ok"}
    assert scores_at({"reward": 1.0, "score_b": 2.0}, 0, []) == {"reward": 1.0}


# --- the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "length.py").write_text(LENGTH)
    (functions / "vowels.py").write_text(VOWELS)
    write_lines(tmp_path / "rows.jsonl", ROWS)
    for name, models in (("a", "[length]"), ("b", "[vowels]")):
        text = f"models: {models}\nfunctions_dir: {functions}\nrule_workers: 1\nmax_missing: 1\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "run.yaml").write_text(
        f"actor_rollout_ref: {{}}\nreward:\n  models: [vowels]\n  functions_dir: {functions}\n"
    )
    return tmp_path


def words(folder: Path, *overrides: str) -> list[str]:
    return [
        f"data.files={folder}/rows.jsonl",
        f"out={folder}/out",
        "trainer.device=cpu",
        "compare.resamples=200",
        *overrides,
    ]


def compared(folder: Path, *overrides: str, second: str = "b.yaml") -> dict[str, Any]:
    config = compose_config(words(folder, *overrides), CompareConfig)
    sections = [folder / "a.yaml", folder / second]
    return run_compare(check_comparison(config, sections, shipped_functions=folder))


def test_two_sections_are_compared(folder: Path) -> None:
    report = compared(folder, "compare.label=good")
    assert json.loads((folder / "out" / "comparison.json").read_text()) == report
    assert (report["responses"], report["compared"], report["prompts"]) == (8, 7, 3)
    # length 4 6 1 | 5 2 | 7 3, vowels 4 0 1 | 3 0 | 1 3
    within = report["within_prompts"]
    assert (within["pairs"], within["same"], within["opposite"]) == (5, 2, 3)
    assert within["same_best"] == pytest.approx(1 / 3)
    assert report["figure"] == "pairs"
    # Good above bad: 1 of 2, 1 of 1, 0 of 1 against all four.
    assert report["difference"]["values"] == [0.5, 1.0]
    assert report["sections"]["a"]["costs"]["length"]["computed"] == 8
    assert report["sections"]["a"]["rewards"] == 7
    flip = report["flips"][0]
    assert flip["response"] == "bbbbbb"
    assert (flip["good"], flip["a"]["score_length"], flip["b"]["reward"]) == (False, 6.0, 0.0)
    assert (folder / "out" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    text = console(report)
    # 3 prompts with 2, 1 and 1 pairs
    assert re.search(r"^pairs +a +b +b - a.* prompts +count *\n.* 3 +4 *$", text, re.MULTILINE)
    assert "labelled bad" in text
    assert "\x1b" not in text


def test_the_same_command_scores_nothing_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = compared(folder)
    assert first["figure"] == "mean"
    times = [(folder / "out" / f"{name}.jsonl").stat().st_mtime_ns for name in "ab"]
    again = compared(folder, "compare.label=good", "compare.figure=best")
    assert again["figure"] == "best"
    assert again["sections"] == first["sections"]
    assert [(folder / "out" / f"{name}.jsonl").stat().st_mtime_ns for name in "ab"] == times
    with pytest.raises(OutputDirError, match=r"b\.jsonl.*holds the scores of another evaluation"):
        compared(folder, second="a.yaml")
    assert compared(folder, "overwrite=true", second="a.yaml")["agreement"]["equal"] == 1.0


def test_csv_rows_with_several_responses_are_compared(folder: Path) -> None:
    from_jsonl = compared(folder, "compare.label=good", f"out={folder}/jsonl")
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "responses", "response_tokens", "good", "extra_info"])
        for row in ROWS:
            counts = json.dumps([1] * len(row["responses"]))
            good = json.dumps(row["good"])
            further = json.dumps({"good": row["good"]})
            writer.writerow([row["prompt"], json.dumps(row["responses"]), counts, good, further])
    for column in ("good", "extra_info.good"):
        given = [f"data.files={folder}/rows.csv", f"compare.label={column}"]
        from_csv = compared(folder, *given)
        assert from_csv["difference"] == from_jsonl["difference"]
        assert [flip["response"] for flip in from_csv["flips"]] == [
            flip["response"] for flip in from_jsonl["flips"]
        ]


def test_scores_that_the_rows_had_before_are_not_the_sections_own(folder: Path) -> None:
    lines: list[str] = []
    for row in ROWS:
        lines.append(json.dumps({**row, "score_old": [1.0], "status_code": 200}) + "\n")
    (folder / "rows.jsonl").write_text("".join(lines))
    flips = compared(folder)["flips"]
    assert flips
    for flip in flips:
        assert list(flip["a"]) == ["reward", "score_length", "status_length"]
        assert list(flip["b"]) == ["reward", "score_vowels", "status_vowels"]


def test_the_configuration_of_a_run_is_a_section_too(folder: Path) -> None:
    report = compared(folder, "compare.rows=0", second="run.yaml")
    assert report["sections"]["b"]["costs"].keys() == {"vowels"}
    assert report["flips"] == []


MISTAKES: dict[str, tuple[list[str], type[RmrlError], str]] = {
    "nothing given": (["data.files=null", "out=null"], ConfigError, "2 problems"),
    "a figure": (["compare.figure=pears"], ConfigError, "did you mean 'pairs'"),
    "a figure without labels": (["compare.figure=best"], ConfigError, "needs people's labels"),
    "a label": (["compare.label=god"], DataError, "compare.label=... of prompt, responses, good"),
    "labels of some responses": (
        ["compare.label=good", "data.files={folder}/several.jsonl"],
        DataError,
        "saw 1 labels for 2 responses",
    ),
    "marks": (
        ["compare.label=good", "compare.good_from=2", "data.files={folder}/marks.jsonl"],
        DataError,
        "good from 2 on (compare.good_from)",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_sentences_before_anything_is_scored(folder: Path, name: str) -> None:
    overrides, error, sentence = MISTAKES[name]
    marks = {"prompt": "p", "response": "r", "good": "high"}
    (folder / "marks.jsonl").write_text(json.dumps(marks) + "\n")
    several = {"prompt": "p", "responses": ["r", "s"], "good": True}
    (folder / "several.jsonl").write_text(json.dumps(several) + "\n")
    with pytest.raises(error, match=re.escape(sentence)):
        compared(folder, *(text.format(folder=folder) for text in overrides))
    assert not (folder / "out").exists()


def test_a_mistake_in_either_section_stops_both(folder: Path) -> None:
    (folder / "a.yaml").write_text("models: [lenght]\n")
    (folder / "b.yaml").write_text("models: [vowel]\n")
    with pytest.raises(ConfigError) as error:
        compared(folder)
    assert any(f"{folder}/a.yaml: " in problem for problem in error.value.problems)
    assert any(f"{folder}/b.yaml: " in problem for problem in error.value.problems)
    assert not (folder / "out").exists()
    (folder / "b.yaml").write_text("modells: [vowels]\n")
    with pytest.raises(ConfigError, match="did you mean 'models'"):
        read_section(folder / "b.yaml")


def test_rows_that_do_not_belong_together_are_refused(folder: Path) -> None:
    config = compose_config(words(folder, f"data.files={folder}/one.jsonl"), CompareConfig)
    row = {"prompt": "p", "responses": ["x", "y"], "reward": [1.0, 2.0]}
    (folder / "one.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "two.jsonl").write_text(json.dumps({**row, "reward": [1.0]}) + "\n")
    made = read_responses(config, [folder / "one.jsonl", folder / "one.jsonl"])
    assert made.rewards_AN.tolist() == [[1, 2], [1, 2]]
    with pytest.raises(DataError, match="saw other rows than those of"):
        read_responses(config, [folder / "one.jsonl", folder / "two.jsonl"])
    (folder / "two.jsonl").write_text(2 * (json.dumps(row) + "\n"))
    with pytest.raises(DataError, match="saw other rows than those of"):
        read_responses(config, [folder / "one.jsonl", folder / "two.jsonl"])


def test_one_cache_is_shared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    both = [RewardConfig(), RewardConfig()]
    share_cache(both, tmp_path)
    assert [reward.cache.path for reward in both] == [str(tmp_path / "verdicts.sqlite")] * 2
    one = [RewardConfig(), RewardConfig()]
    one[1].cache.path = "own.sqlite"
    share_cache(one, tmp_path)
    assert [reward.cache.path for reward in one] == ["own.sqlite"] * 2
    one[0].cache.path = "other.sqlite"
    share_cache(one, tmp_path)
    assert [reward.cache.path for reward in one] == ["other.sqlite", "own.sqlite"]
    assert any("different caches" in line for line in caplog.messages)


def test_the_scoring_keeps_data_and_budgets() -> None:
    config = compose_config(["over_budget=fail", "data.batch_size=7"], CompareConfig)
    made = scoring_config(config, RewardConfig(models=["x"]), Path("out/a.jsonl"))
    assert (made.out, made.over_budget, made.data.batch_size) == ("out/a.jsonl", "fail", 7)


def test_problems_of_the_configuration_alone() -> None:
    config = compose_config(["compare.figure=pairs", "compare.confidence=1"], CompareConfig)
    starts = ["data.files is empty", "out is empty", "compare.figure=pairs", "compare.confidence=1"]
    problems = list(config_problems(config))
    for problem, start in zip(problems, starts, strict=True):
        assert problem.startswith(start)


def test_a_picture_without_responses(tmp_path: Path) -> None:
    draw(responses([], [], []), tmp_path / "x.png")
    assert (tmp_path / "x.png").is_file()


def test_arguments_in_any_order() -> None:
    files, overrides = sorted_arguments(["a.yaml", "data=x.jsonl", "out=o", "b.yaml"])
    assert files == ["a.yaml", "b.yaml"]
    assert overrides == ["data=x.jsonl", "out=o"]
    with pytest.raises(ConfigError, match="saw 1 files"):
        sorted_arguments(["a.yaml", "out=o"])


def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(folder / "a.yaml"), str(folder / "b.yaml")]
    given = [f"data={folder}/rows.jsonl", f"out={folder}/out", "trainer.device=cpu"]
    assert main([*files, *given]) == 0
    printed = capsys.readouterr()
    assert "within prompts" in printed.out
    assert f"wrote {folder}/out/comparison.json" in printed.err
    assert main([files[0], *given]) == 2
    assert main([*files, *given, "compare.rowz=1"]) == 2
    assert "did you mean 'rows'" in capsys.readouterr().err
