"""Sums of a whole file, and how far it is."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from rmrl.offline.progress import counting
from rmrl.offline.summary import Cost, ScoreMoments, Summary
from rmrl.types import RewardBatch, ScoreResult, Scores


def batch(*values: float | None) -> RewardBatch:
    results = tuple(
        ScoreResult(value=v) if v is not None else ScoreResult(value=None, status="timeout")
        for v in values
    )
    rewards = np.asarray([np.nan if v is None else 2 * v for v in values])
    scores = Scores(names=("a",), results=(results,))
    return RewardBatch(
        scores=scores, weights_C=np.ones(1), rewards_B=rewards, keep_B=~np.isnan(rewards)
    )


def test_mean_and_std_over_batches() -> None:
    summary = Summary()
    for part in (batch(1.0, None), batch(2.0, 6.0)):
        summary.add(part)
    # 1, 2, 6: mean 3, squares 41 / 3 - 9 = 14 / 3, its root 2.16; rewards are twice that
    assert summary.table().splitlines() == [
        "scores",
        "          mean +- std           no verdict",
        "  a       3 +- 2.16             1 timeout",
        "  reward  6 +- 4.32             1",
    ]


def test_a_summary_goes_on_where_it_was_written_down() -> None:
    whole, first = Summary(), Summary()
    for part in (batch(1.0, None), batch(2.0, 1 / 3)):
        whole.add(part)
    first.add(batch(1.0, None))
    again = Summary.from_json(json.loads(json.dumps(first.to_json())))
    again.add(batch(2.0, 1 / 3))
    assert again == whole


def test_far_from_zero_the_std_is_still_there() -> None:
    moments = ScoreMoments()
    for _ in range(1000):
        moments.add(np.asarray([1e9 - 1.0, 1e9 + 1.0]))
    assert str(moments) == "1e+09 +- 1"


def test_nothing_was_scored() -> None:
    assert str(ScoreMoments()) == "-"


def test_a_log_gets_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    with counting(10, every_s=0.0) as update:
        update(0)  # nothing is done yet: no speed is known
        update(4)
        update(7)
        update(10)
    assert caplog.messages[0] == "scored 4 of 10 responses"
    line = caplog.messages[-1]
    assert re.fullmatch(r"scored 7 of 10 responses, \S+ a second, about \d+ s left", line)
    with counting(10, every_s=60.0) as update:
        update(4)
    assert caplog.messages[-1] == line
    with counting(10, done=6, every_s=0.0) as update:
        update(7)
    assert caplog.messages[-1] == "scored 7 of 10 responses"


def test_moments_ignore_what_is_no_number() -> None:
    moments = ScoreMoments()
    moments.add(np.asarray([np.nan, 3.0]))
    assert str(moments) == "3 +- 0"
    assert moments.count == pytest.approx(1)


def test_merged_parts_are_the_whole() -> None:
    draw = np.random.default_rng(5)
    whole = Cost()
    merged = ScoreMoments()
    numbers = draw.normal(1e6, 1e-3, size=1000)
    for part in np.split(numbers, [10, 400]):
        moments = ScoreMoments()
        moments.add(part)
        merged.merge(moments)
    merged.merge(ScoreMoments())
    assert merged.count == 1000
    assert merged.mean == pytest.approx(numbers.mean(), rel=1e-15)
    assert merged.squares / 1000 == pytest.approx(numbers.var(), rel=1e-6)
    whole.merge(Cost(computed=2, cached=1, tokens_in=5, latency_s=0.5))
    whole.merge(Cost(computed=3, tokens_in=7, latency_s=0.25))
    assert whole == Cost(computed=5, cached=1, tokens_in=12, latency_s=0.75)


def test_responses_that_were_not_asked_about_are_kept() -> None:
    unasked = ScoreResult(value=None, status="unparseable", unasked=True)
    part = batch(1.0, None)
    results = ((part.scores.results[0][0], unasked),)
    part = dataclasses.replace(part, scores=Scores(names=("a",), results=results))
    summary = Summary()
    summary.add(part)
    again = Summary.from_json(json.loads(json.dumps(summary.to_json())))
    assert again == summary
    assert (again.verdicts["a"].missing(), again.verdicts["a"].asked) == (0, 2)
    again.merge(summary)
    assert again.verdicts["a"].unasked == {"unparseable": 2}
    assert again.table().splitlines()[2].endswith("2 unparseable")


def test_the_time_of_each_reward_and_engine_is_added_up() -> None:
    metrics = {"engine/a+b/load_s": 2.0, "engine/a+b/loads": 1.0, "engine/a+b/sleep_s": 0.25}
    part = dataclasses.replace(batch(1.0), metrics=metrics)
    summary = Summary(seconds=6.0)
    summary.add(part, busy_s={"a": 1.5, "longer": 0.5})
    assert (summary.busy_s, summary.engines) == (
        {"a": 1.5, "longer": 0.5},
        {"a+b": {"load_s": 2.0, "sleep_s": 0.25}},
    )
    again = Summary.from_json(json.loads(json.dumps(summary.to_json())))
    assert again == summary
    again.merge(summary)
    assert again.times().splitlines() == [
        "where 12.0 s went",
        "  a       3.0 s",
        "  longer  1.0 s",
        "  engine of a+b: load 4.0 s, sleep 0.5 s",
    ]
    assert summary.busy_s == {"a": 1.5, "longer": 0.5}
    assert Summary().times() == ""
