"""Metrics of scores against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmrl.config.schema.reward import RewardMonitorConfig
from rmrl.rewards.session.monitor import Monitor
from rmrl.telemetry.names import MONITOR_HINTS, component_names, correlation, score_metrics
from rmrl.types import RewardBatch, ScoreResult, Scores

NAN = math.nan


def column(
    *values: float | None, status: str = "timeout", **more: float
) -> tuple[ScoreResult, ...]:
    return tuple(
        ScoreResult(value=v, status="ok" if v is not None else status, **more) for v in values
    )  # type: ignore[arg-type]


def batch(scores: Scores, rewards: list[float]) -> RewardBatch:
    rewards_B = np.asarray(rewards, dtype=np.float64)
    return RewardBatch(
        scores=scores,
        weights_C=np.ones(len(scores.names)),
        rewards_B=rewards_B,
        keep_B=np.isfinite(rewards_B),
    )


def test_spread_shares_and_lengths() -> None:
    scores = Scores(
        names=("a",),
        results=(column(1.0, 3.0, None, 8.0, latency_s=0.5, tokens_in=10, tokens_out=2),),
    )
    got = score_metrics(
        scores,
        batch(scores, [1.0, 3.0, NAN, 8.0]),
        [4, 6, 8, 10],
        truncated=[False, False, False, True],
    )
    # mean of 1, 3, 8 = 4; variance (9 + 1 + 16) / 3
    assert got["reward/mean"] == got["score/a/mean"] == pytest.approx(4.0)
    assert got["score/a/std"] == pytest.approx(math.sqrt(26 / 3))
    assert (got["score/a/min"], got["score/a/max"], got["reward/kept"]) == (1.0, 8.0, 0.75)
    assert (got["score/a/missing"], got["score/a/missing_timeout"], got["score/a/skipped"]) == (
        0.25,
        0.25,
        0.0,
    )
    assert (got["score/a/latency_s"], got["score/a/tokens_in"], got["score/a/tokens_out"]) == (
        0.5,
        40,
        8,
    )
    assert (got["response/length_mean"], got["response/length_max"], got["response/truncated"]) == (
        7.0,
        10.0,
        0.25,
    )


def test_correlations_by_hand() -> None:
    scores = Scores(
        names=("a", "b"), results=(column(1.0, 2.0, 3.0, None), column(2.0, 1.0, 4.0, 9.0))
    )
    got = score_metrics(scores, batch(scores, [0.0, 1.0, 2.0, NAN]), [30, 20, 10, 5])
    # a - 2 = (-1, 0, 1); b - 7/3 = (-1/3, -4/3, 5/3); product 2; |a| = sqrt 2, |b| = sqrt(42)/3
    assert got["score/a/corr_b"] == pytest.approx(2 / (math.sqrt(2) * math.sqrt(42) / 3))
    assert got["score/a/corr_length"] == pytest.approx(-1.0)
    # b - 4 = (-2, -3, 0, 5); length - 16.25 = (13.75, 3.75, -6.25, -11.25); product -95; norms sqrt
    # 38, sqrt 368.75
    assert got["score/b/corr_length"] == pytest.approx(-95 / math.sqrt(38 * 368.75))
    assert "score/b/corr_a" not in got


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1.0, 2.0], [1.0, 2.0]),
        ([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]),
        ([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]),
        ([1.0, NAN, 3.0], [1.0, 2.0, 3.0]),
        ([], []),
    ],
)
def test_an_undefined_correlation_is_none(left: list[float], right: list[float]) -> None:
    assert correlation(np.asarray(left), np.asarray(right)) is None


def test_correlation_survives_huge_and_tiny_numbers() -> None:
    assert correlation(
        np.asarray([1e300, 2e300, 3e300]), np.asarray([1e-300, 2e-300, 3e-300])
    ) == pytest.approx(1.0)


def test_a_constant_component_has_no_correlation_key() -> None:
    scores = Scores(names=("format", "b"), results=(column(1.0, 1.0, 1.0), column(0.0, 1.0, 2.0)))
    got = score_metrics(scores, batch(scores, [1.0, 2.0, 3.0]), [5, 5, 5])
    assert not [key for key in got if "corr" in key]


def test_no_verdict_at_all_leaves_the_numbers_out() -> None:
    scores = Scores(names=("dead",), results=(column(None, None, status="provider_error"),))
    got = score_metrics(scores, batch(scores, [NAN, NAN]), [1, 2])
    assert got["score/dead/missing"] == got["score/dead/missing_provider_error"] == 1.0
    assert got["reward/kept"] == 0.0
    assert "score/dead/mean" not in got
    assert "reward/mean" not in got
    assert component_names(got) == ["dead"]


def test_skipped_is_not_missing_and_cached_rows_have_no_latency() -> None:
    asked, cached = ScoreResult(value=1.0, latency_s=4.0), ScoreResult(value=2.0, cached=True)
    skipped = ScoreResult(value=None, status="skipped")
    scores = Scores(names=("org/judge",), results=((asked, cached, skipped, skipped),))
    got = score_metrics(scores, batch(scores, [1.0, 2.0, NAN, NAN]), [1, 1, 1, 1])
    assert (got["score/org/judge/missing"], got["score/org/judge/skipped"]) == (0.0, 0.5)
    assert (got["score/org/judge/latency_s"], got["score/org/judge/cached"]) == (4.0, 0.25)
    assert component_names(got) == ["org/judge"]


def test_an_empty_step_is_an_empty_answer() -> None:
    none = Scores(names=(), results=())
    assert score_metrics(none, batch(none, []), []) == {}


def test_nothing_infinite_gets_out() -> None:
    scores = Scores(names=("a",), results=(column(math.inf, 1.0, 3.0),))
    got = score_metrics(scores, batch(scores, [math.inf, 1.0, 3.0]), [1, 2, 3])
    assert got["score/a/mean"] == got["reward/mean"] == 2.0
    assert all(math.isfinite(value) for value in got.values())


def test_the_monitor_writes_the_name_that_is_read_here() -> None:
    assert list(Monitor(RewardMonitorConfig()).metrics()) == [MONITOR_HINTS]


def test_extra_columns_that_are_numbers_have_a_mean():
    results = tuple(
        ScoreResult(value=1.0, extra=extra)
        for extra in ({"length": 4, "right": True, "why": "x"}, {"length": 8}, {"a/b": 1.0})
    )
    scores = Scores(names=("rule",), results=(results,))
    metrics = score_metrics(scores, batch(scores, [1.0] * 3), [1, 1, 1])
    assert (metrics["score/rule/extra_length"], metrics["score/rule/extra_right"]) == (6.0, 1.0)
    assert [key for key in metrics if "extra_" in key] == [
        "score/rule/extra_length",
        "score/rule/extra_right",
    ]
