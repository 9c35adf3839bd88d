"""Statistics of a report, against numbers by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.offline.scored_responses import responses
from rmrl.report import statistics
from rmrl.report.numbers import Component, Numbers, gathered
from tests.inputs import write_lines
from tests.report.samples import SAMPLES, sample, write_run


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    return gathered(responses(write_run(tmp_path / "run") / "samples.jsonl"))


def test_moments_by_hand(numbers: Numbers) -> None:
    summary = statistics.summary(numbers)
    # Rewards 1.2, 0.9, none, 1.6: mean 3.7 / 3.
    assert summary["reward"]["count"] == 3
    assert summary["reward"]["mean"] == pytest.approx(3.7 / 3)
    assert summary["rule"] == {"count": 4, "mean": 0.5, "std": 0.5, "min": 0.0, "max": 1.0}


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    values = np.asarray([3.0, 1.0, 3.0, np.nan, 2.0])
    # Ordered 1, 2, 3, 3: positions 0, 1, 2.5, 2.5 of 3.
    np.testing.assert_allclose(statistics.ranks(values), [2.5 / 3, 0, 2.5 / 3, np.nan, 1 / 3])
    assert statistics.ranks(np.asarray([4.0, 4.0])).tolist() == [0.5, 0.5]
    assert statistics.ranks(np.asarray([4.0])).tolist() == [0.5]


def test_the_most_disputed_response_is_ranked_first_by_one_and_last_by_the_other(
    numbers: Numbers,
) -> None:
    # rule 1, 0, 0, 1 -> ranks 5/6, 1/6, 1/6, 5/6; judge .2, .9, none, .6 -> 0, 1, none, 1/2.
    expected = [5 / 6, 5 / 6, 0.0, 1 / 3]
    np.testing.assert_allclose(statistics.disputed(numbers), expected)


def test_components_are_opposite_where_one_is_above_and_one_below_its_middle(
    numbers: Numbers,
) -> None:
    (pair,) = statistics.opposed(numbers)
    # Both verdicts: rule 1, 0, 1 (two values: .5), judge .2, .9, .6 (median .6): the first two.
    assert (pair["first"], pair["second"], pair["count"]) == ("rule", "judge", 3)
    assert pair["opposed"] == pytest.approx(2 / 3)


def test_components_of_two_values_are_opposite_where_their_verdicts_differ(
    tmp_path: Path,
) -> None:
    verdicts = [(1, 1), (1, 0), (1, 1), (0, 1), (1, 1)]  # the median of both is 1
    lines: list[dict[str, Any]] = []
    for rule, judge in verdicts:
        lines.append(sample(1, len(lines), "text", rule=float(rule), judge=float(judge)))
    numbers = gathered(responses(write_run(tmp_path / "run", lines) / "samples.jsonl"))
    (pair,) = statistics.opposed(numbers)
    assert pair["opposed"] == pytest.approx(2 / 5)


def test_histogram_counts_every_value_once() -> None:
    edges = statistics.edges_of([np.asarray([0.0, 1.0]), np.asarray([2.0, np.nan])])
    assert (edges[0], edges[-1], len(edges)) == (0.0, 2.0, statistics.BINS + 1)
    counts = statistics.histogram(np.asarray([0.0, 1.0, 2.0, np.nan]), edges)
    assert sum(counts) == 3
    assert (counts[0], counts[-1]) == (1, 1)
    assert statistics.edges_of([np.asarray([np.nan])]) == []
    assert statistics.edges_of([np.asarray([3.0])])[0] == 2.5


def test_length_bias_by_hand(tmp_path: Path) -> None:
    lines = [sample(1, i, "word " * (i + 1), rule=float(i), judge=0.5) for i in range(10)]
    numbers = gathered(responses(write_run(tmp_path / "run", lines) / "samples.jsonl"))
    bias = statistics.length_bias(numbers)
    assert bias["unit"] == "tokens"
    assert bias["lines"]["rule"]["r"] == pytest.approx(1.0)
    # Fifths of two: 0, 1 | 2, 3 | ...
    assert bias["lines"]["rule"]["means"] == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert bias["lines"]["judge"]["r"] is None


def test_without_tokens_lengths_are_characters(tmp_path: Path) -> None:
    path = tmp_path / "scored.jsonl"
    row = {"prompt": "p", "response": "four", "reward": 1, "score_a": 1, "status_a": "ok"}
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, "response": "three"}) + "\n")
    numbers = gathered(responses(path))
    assert numbers.lengths_N.tolist() == [4, 5]
    assert statistics.length_bias(numbers)["unit"] == "characters"
    assert statistics.curves(numbers, None) == {}


def test_verdicts_are_counted_by_status(numbers: Numbers) -> None:
    assert statistics.verdicts(numbers) == {
        "rule": {"ok": 4},
        "judge": {"ok": 3, "unparseable": 1},
    }


def test_curves_are_those_of_the_metrics_else_means_by_step(
    numbers: Numbers, tmp_path: Path
) -> None:
    curves = statistics.curves(numbers, tmp_path / "run" / "metrics.jsonl")
    assert curves == {
        "reward/mean": ([1, 2], [1.05, 1.6]),
        "score/judge/mean": ([1, 2], [0.55, 0.6]),
        "score/judge/missing": ([2], [0.5]),
    }
    own = statistics.curves(numbers, None)
    assert own["reward/mean"] == ([1.0, 2.0], [pytest.approx(1.05), 1.6])
    assert own["response/length_mean"][0] == [1.0, 2.0]
    assert len(SAMPLES) == 4


def test_the_curves_of_a_report_are_few() -> None:
    drawn = ["reward/mean", "policy/kl", "score/a/mean", "score/a/missing", "val/sums/accuracy"]
    others = ["reward/std", "score/a/std", "val/sums/pass@4", "val/sums/missing", "timing/step"]
    assert [statistics.is_drawn(key) for key in drawn] == [True] * 5
    assert [statistics.is_drawn(key) for key in others] == [False] * 5


def test_logged_curves_stand_in_one_order_and_without_gaps(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"step": 2, "score/a/missing": 0.5, "reward/kept": 1, "policy/kl": 0.1, "note": "x"},
        {"step": 1, "score/b/mean": 0.2, "reward/mean": 3.0, "policy/kl": 0.2},
    ]
    write_lines(path, rows)
    curves = statistics.logged_curves(path)
    assert list(curves) == [
        *("reward/mean", "reward/kept", "policy/kl", "score/b/mean", "score/a/missing")
    ]
    assert curves["policy/kl"] == ([1, 2], [0.2, 0.1])


def test_a_verdict_without_a_status_is_ok_where_it_has_a_score() -> None:
    component = Component()
    for verdict in ({}, {"score": 1}, {"score": None}, {"score": 2, "status": "timeout"}):
        component.add(verdict)
    assert component.statuses == ["", "ok", "no verdict", "timeout"]
    np.testing.assert_array_equal(component.scores_N, [np.nan, 1.0, np.nan, 2.0])


def test_the_kl_of_the_step_and_that_to_the_reference_both_have_curves(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    first = {"step": 1, "policy/kl": 0.0, "policy/ref_kl": 0.01}
    second = {"step": 2, "policy/kl": 0.0, "policy/ref_kl": 0.02}
    write_lines(file, [first, second])
    assert statistics.logged_curves(file) == {
        "policy/kl": ([1, 2], [0.0, 0.0]),
        "policy/ref_kl": ([1, 2], [0.01, 0.02]),
    }
