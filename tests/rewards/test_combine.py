"""From component scores to one reward, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmrl.errors import RewardError
from rmrl.rewards.combine import combine
from rmrl.rewards.spec import OnMissing, RewardSpec
from rmrl.types import RewardBatch, ScoreResult, Scores

MISSING = ScoreResult(value=None, status="timeout", detail="after 10 s")


def spec(name: str, weight: float, policy: str = "mask", *, op: str = "add", value: float | None = None) -> RewardSpec:
    return RewardSpec(name=name, kind="rule", weight=weight, combine_op=op, on_missing=OnMissing(policy=policy, value=value))


def combined(specs: list[RewardSpec], *columns: list[float | None], how: str = "weighted_sum") -> RewardBatch:
    results = tuple(tuple(MISSING if v is None else ScoreResult(value=v) for v in column) for column in columns)
    return combine(Scores(names=tuple(s.name for s in specs), results=results), specs, how=how)


def rewards(batch: RewardBatch) -> list[float | None]:
    assert [math.isnan(r) for r in batch.rewards_B] == [not keep for keep in batch.keep_B]
    return [None if math.isnan(r) else round(float(r), 9) for r in batch.rewards_B]


def test_weights_are_used_as_given():
    batch = combined([spec("a", 0.3), spec("b", 0.5)], [1.0, 2.0], [4.0, -1.0])
    assert rewards(batch) == [2.3, 0.1]  # 0.3 * 1 + 0.5 * 4;  0.3 * 2 - 0.5 * 1
    assert batch.weights_C.tolist() == [0.3, 0.5]


def test_negative_and_zero_weights():
    assert rewards(combined([spec("a", 1.0), spec("b", -2.0), spec("c", 0.0)], [1.0], [0.25], [1e300])) == [0.5]


def test_masked_rows_have_no_reward():
    batch = combined([spec("a", 1.0), spec("b", 1.0)], [1.0, None, 3.0], [1.0, 1.0, None])
    assert rewards(batch) == [2.0, None, None]
    assert batch.keep_B.tolist() == [True, False, False]


def test_a_masked_component_of_weight_zero_still_masks():
    assert rewards(combined([spec("a", 1.0), spec("b", 0.0)], [1.0], [None])) == [None]


def test_renormalize_keeps_the_total_weight():
    specs = [spec("a", 1.0, "renormalize"), spec("b", 3.0), spec("c", 4.0)]
    # row 1 lacks a: 8 / 7 * (3 * 1 + 4 * 0.5)
    assert rewards(combined(specs, [2.0, None], [1.0, 1.0], [0.5, 0.5])) == [7.0, round(8 / 7 * 5, 9)]


def test_renormalize_with_a_negative_weight_keeps_the_absolute_total():
    # |1| + |-2| = 3; without a: -2 * 3 / 2 = -3
    assert rewards(combined([spec("a", 1.0, "renormalize"), spec("b", -2.0, "renormalize")], [None, 5.0], [0.5, None])) == [-1.5, 15.0]


def test_a_row_that_lost_everything_has_no_reward():
    two = [spec("a", 1.0, "renormalize"), spec("b", 1.0, "renormalize")]
    assert rewards(combined(two, [None, 1.0], [None, 1.0])) == [None, 2.0]
    # what is left has weight 0: no honest number either
    assert rewards(combined([spec("a", 1.0, "renormalize"), spec("b", 0.0)], [None], [7.0])) == [None]
    assert rewards(combined([spec("a", 0.0, "renormalize")], [None])) == [None]


def test_rows_that_lack_nothing_are_untouched_to_the_last_bit():
    weights = [0.1 * k + 0.01 for k in range(12)]
    specs = [spec(f"c{k}", w, "renormalize") for k, w in enumerate(weights)]
    values = np.random.default_rng(0).normal(size=(12, 2))
    columns = [[float(v[0]), None if k == 3 else float(v[1])] for k, v in enumerate(values)]
    expected = float((values[:, 0] * np.asarray(weights))[None, :].sum(axis=1)[0])
    assert float(combined(specs, *columns).rewards_B[0]) == expected


def test_impute_stands_in_where_it_is_missing():
    batch = combined([spec("a", 2.0, "impute", value=-0.5), spec("b", 1.0)], [None, 1.0], [3.0, 3.0])
    assert rewards(batch) == [2.0, 5.0]  # 2 * -0.5 + 3
    assert np.isnan(batch.scores.values_BC[0, 0])


def test_fail_stops_and_says_why():
    with pytest.raises(RewardError, match=r"reward 'b' gave no verdict for 1 of 2 responses and on_missing=fail: timeout: after 10 s"):
        combined([spec("a", 1.0), spec("b", 1.0, "fail")], [1.0, 1.0], [1.0, None])


def test_fold_adds_and_multiplies_in_order():
    specs = [spec("a", 1.0), spec("b", 0.5, op="add"), spec("c", 2.0, op="mul")]
    # (1 + 0.5 * 4) * 2 * 3 = 18;  (1 + 0) * 2 * -1 = -2
    assert rewards(combined(specs, [1.0, 1.0], [4.0, 0.0], [3.0, -1.0], how="fold")) == [18.0, -2.0]


def test_fold_starts_from_zero():
    assert rewards(combined([spec("a", 1.0, op="mul"), spec("b", 1.0)], [5.0], [2.0], how="fold")) == [2.0]
    assert rewards(combined([spec("a", 1.0), spec("b", 0.0, op="mul")], [5.0], [2.0], how="fold")) == [0.0]


def test_fold_passes_over_what_a_row_lacks():
    specs = [spec("a", 1.0), spec("b", 1.0, "renormalize", op="mul")]
    # without b the other weight is doubled: 2 * 3, never 3 * 0
    assert rewards(combined(specs, [3.0, 3.0], [2.0, None], how="fold")) == [6.0, 6.0]
    assert rewards(combined(specs, [4.0], [None], how="fold")) == [8.0]


def test_fold_without_its_start_is_started_by_the_next():
    specs = [spec("a", 1.0, "renormalize"), spec("b", 1.0, op="mul")]
    assert rewards(combined(specs, [None, 2.0], [3.0, 3.0], how="fold")) == [6.0, 6.0]  # 2 * 3;  2 * 3


def test_fold_with_mask_and_impute():
    specs = [spec("a", 1.0), spec("b", 1.0, "impute", op="mul", value=0.5)]
    assert rewards(combined(specs, [4.0, None], [None, 1.0], how="fold")) == [2.0, None]


def test_everything_missing_and_nothing_at_all():
    assert rewards(combined([spec("a", 1.0)], [None, None])) == [None, None]
    assert rewards(combined([spec("a", 1.0), spec("b", 1.0)], [], [])) == []
    assert rewards(combined([spec("a", 1.0)], [], how="fold")) == []


def test_the_scores_are_not_changed():
    scores = Scores(names=("a",), results=((MISSING, ScoreResult(value=1.0)),))
    batch = combine(scores, [spec("a", 1.0, "impute", value=9.0)], how="weighted_sum")
    assert batch.scores is scores
