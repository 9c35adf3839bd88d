"""Budgets of missing verdicts over a whole file: nothing stops in the first batch, and the end says
what is missing and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rmrl.config.schema import RewardConfig
from rmrl.errors import MissingVerdictsError
from rmrl.offline.job import Job
from rmrl.offline.missing_table import OF_FUNCTION, REMEDIES, broken_budgets, missing_table
from rmrl.offline.score import judge_missing
from rmrl.offline.summary import Summary
from rmrl.rewards.session.missing import CAUSES, UNASKED, VerdictCounts
from rmrl.types import RewardBatch, ScoreResult, Scores
from tests.inputs import read_lines
from tests.offline.conftest import Bench


def test_a_first_batch_without_verdicts_stops_nothing(bench: Bench) -> None:
    bench.rows("silent", "silent", "a", "b", "c", "d", "e", "f", "g", "h")
    out = bench.folder / "s.jsonl"
    checked = bench.checked(
        f"data.files={bench.folder}/rows.jsonl", f"out={out}", "data.batch_size=2"
    )
    summary = bench.score(checked)
    rows = read_lines(out)
    assert [row["status_length"] for row in rows] == ["unparseable"] * 2 + ["ok"] * 8
    judge_missing(checked, summary)  # 2 of 10: 20 % is allowed
    table = bench.notices[-1].splitlines()
    assert table[0] == "missing verdicts"
    assert table[2].split()[:7] == ["length", "unparseable", "data", "2", "of", "10", "20.0%"]


def test_more_than_the_budget_ends_with_the_file_in_place(bench: Bench) -> None:
    bench.rows("a", "b", "silent", "silent")
    out = bench.folder / "s.jsonl"
    keys = (
        f"data.files={bench.folder}/rows.jsonl",
        f"out={out}",
        "reward.max_missing_by_cause={user: 0.0, data: 0.4}",
    )
    checked = bench.checked(*keys, "over_budget=fail")
    summary = bench.score(checked)
    assert [row["reward"] for row in read_lines(out)] == [
        0.1,
        0.1,
        None,
        None,
    ]
    with pytest.raises(MissingVerdictsError) as caught:
        judge_missing(checked, summary)
    text = str(caught.value)
    assert f"all rows are in {out} with their statuses" in text
    assert (
        "reward 'length' gave no verdict for 2 of 4 responses (50.0%); reward.max_missing=0.2"
        " allows 20%" in text
    )
    assert "reward.max_missing_by_cause.data=0.4 allows 40%" in text
    assert "leave over_budget=fail out" in text
    warned = bench.checked(*keys, "overwrite=true")
    judge_missing(warned, summary)
    assert "reward.max_missing=0.2 allows 20%" in bench.notices[-1]


def test_the_table_is_of_the_whole_file_also_when_the_job_went_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.rows("silent", "a", "silent", "", "silent", "b")
    (bench.folder / "functions" / "guard.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n    return 1.0\n"
    )
    keys = (
        f"data.files={bench.folder}/rows.jsonl",
        f"out={bench.folder}/s.jsonl",
        "data.batch_size=1",
        "reward.models=[length,guard]",
        "reward.specs.guard.gate=[length]",
    )
    add = Job.add

    def add_twice(job: Job, *arguments: Any, **named: Any) -> None:
        if job.batches_done == 2:
            raise KeyboardInterrupt
        add(job, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Job, "add", add_twice)
        with pytest.raises(KeyboardInterrupt):
            bench.score(bench.checked(*keys))
    assert "2 of 6 rows are scored and kept" in bench.notices[-1]
    summary = bench.score(bench.checked(*keys))
    lines = missing_table(summary.verdicts).splitlines()
    # the rule `length` says None for 3 of 6; `guard` is not asked there (nor for "", which has
    # length 0), so it misses nothing
    assert [line.split()[:7] for line in lines[2:-2]] == [
        ["length", "unparseable", "data", "3", "of", "6", "50.0%"]
    ]
    assert lines[2].split("50.0%")[1].strip() != ""
    assert lines[-2] == "what to do"
    assert lines[-1].strip().startswith("unparseable: ")
    assert (
        len(broken_budgets(summary.in_reward, bench.checked(*keys, "overwrite=true").config.reward))
        == 1
    )
    assert "guard   1 +- 0                4 skipped" in summary.table()


def test_a_component_that_takes_no_part_in_the_reward_breaks_no_budget() -> None:
    results = (
        ScoreResult(value=None, status="timeout"),
        ScoreResult(value=None, status="timeout"),
        ScoreResult(value=1.0),
    )
    rewards = RewardBatch(
        scores=Scores(names=("watched", "counted"), results=(results, results)),
        weights_C=np.asarray([0.0, 1.0]),
        rewards_B=np.asarray([np.nan, np.nan, 1.0]),
        keep_B=np.asarray([False, False, True]),
        takes_part_BC=np.asarray([[False, True]] * 3),
    )
    summary = Summary()
    summary.add(rewards)
    (sentence,) = broken_budgets(summary.in_reward, RewardConfig())
    assert sentence.startswith("reward 'counted' gave no verdict for 2 of 3 responses (66.7%)")
    assert missing_table(summary.verdicts).count("timeout  infrastructure  2 of 3") == 2


def test_what_was_not_asked_has_its_reason_and_no_remedy() -> None:
    counts = VerdictCounts()
    detail = "a limit ended the response (length)"
    counts.add([ScoreResult(value=None, status="overlong", detail=detail, unasked=True)])
    *_, line = missing_table({"judge": counts}).splitlines()
    cells = [cell.strip() for cell in line.split("  ") if cell]
    assert cells == ["judge", "overlong, not asked", "1 of 1", "100.0%", detail]


def test_nothing_missing_prints_nothing(bench: Bench) -> None:
    checked = bench.checked(f"data.files={bench.rows('a', 'b')}", f"out={bench.folder}/s.jsonl")
    summary = bench.score(checked)
    said = len(bench.notices)
    judge_missing(checked, summary)
    assert len(bench.notices) == said


def test_every_status_of_a_missing_verdict_has_a_remedy() -> None:
    of_causes = {status for statuses in CAUSES.values() for status in statuses}
    assert set(REMEDIES) == {
        *of_causes,
        f"unparseable, {UNASKED}",
        f"unparseable, {OF_FUNCTION}",
    }


def test_a_reward_without_any_verdict_is_an_error_with_advice_for_a_function(bench: Bench) -> None:
    bench.rows(*["silent"] * 3)
    checked = bench.checked(
        f"data.files={bench.folder}/rows.jsonl", f"out={bench.folder}/s.jsonl", "over_budget=warn"
    )
    summary = bench.score(checked)
    with pytest.raises(MissingVerdictsError, match="no response has a verdict of length: correct"):
        judge_missing(checked, summary)
    assert "unparseable, no number: let the function return a number" in bench.notices[-1]
    assert "json_schema" not in bench.notices[-1]
    judge_missing(checked, summary, over_budget="warn")  # a caller that looks for itself


def test_a_reward_that_gives_all_responses_one_score_is_remarked_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.rows(*["same"] * 20)
    checked = bench.checked(f"data.files={bench.folder}/rows.jsonl", f"out={bench.folder}/s.jsonl")
    judge_missing(checked, bench.score(checked))
    assert "reward 'length' is 0.4 for all of 20 responses, so it tells none" in caplog.text
