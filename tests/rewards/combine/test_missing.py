"""What a missing verdict does, per policy and combiner."""

from __future__ import annotations

import numpy as np
import pytest

from rmrl.errors import RewardError
from tests.rewards.combine.parts import combined, rewards, rewards_of, spec


def test_masked_rows_have_no_reward():
    batch = combined([spec("a", 1.0), spec("b", 1.0)], [1.0, None, 3.0], [1.0, 1.0, None])
    assert rewards(batch) == [2.0, None, None]
    assert batch.keep_B.tolist() == [True, False, False]


def test_renormalize_keeps_the_total_weight():
    specs = [spec("a", 1.0, "renormalize"), spec("b", 3.0), spec("c", 4.0)]
    # row 1 lacks a: 8 / 7 * (3 * 1 + 4 * 0.5)
    assert rewards_of(specs, [2.0, None], [1.0, 1.0], [0.5, 0.5]) == [7.0, round(8 / 7 * 5, 9)]


def test_renormalize_with_a_negative_weight_keeps_the_absolute_total():
    # |1| + |-2| = 3; without a: -2 * 3 / 2 = -3
    assert rewards_of(
        [spec("a", 1.0, "renormalize"), spec("b", -2.0, "renormalize")], [None, 5.0], [0.5, None]
    ) == [-1.5, 15.0]


def test_renormalize_does_not_count_what_was_skipped():
    specs = [spec("a", 1.0, "renormalize"), spec("b", 3.0), spec("c", 4.0)]
    # c is skipped, a missing: the total of those that count is 4, all of it now b's
    assert rewards_of(specs, [None], [1.0], ["skipped"]) == [4.0]


def test_a_row_that_lost_everything_has_no_reward():
    two = [spec("a", 1.0, "renormalize"), spec("b", 1.0, "renormalize")]
    assert rewards_of(two, [None, 1.0], [None, 1.0]) == [None, 2.0]
    # what is left has weight 0: no honest number either
    assert rewards_of([spec("a", 1.0, "renormalize"), spec("b", 0.0)], [None], [7.0]) == [None]
    # what is left was not even asked
    assert rewards_of(two, [None], ["skipped"]) == [None]


@pytest.mark.parametrize(
    ("how", "expected"), [("product", 6.0), ("min", 2.0), ("max", 3.0), ("soft_min", 2.5)]
)
def test_no_other_combiner_rescales_what_is_left(how: str, expected: float):
    specs = [spec("a", 1.0, "renormalize"), spec("b", 1.0), spec("c", 1.0)]
    assert rewards_of(specs, [None], [2.0], [3.0], how=how, soft_min_beta=0.0) == [expected]


def test_lexicographic_cannot_place_a_row_that_lacks_a_key():
    specs = [spec("a", 1.0, "renormalize"), spec("b", 1.0)]
    assert rewards_of(specs, [None, 1.0, 2.0], [9.0, 2.0, 3.0], how="lexicographic") == [
        None,
        0.0,
        1.0,
    ]


def test_impute_stands_in_where_it_is_missing():
    batch = combined(
        [spec("a", 2.0, "impute", value=-0.5), spec("b", 1.0)], [None, 1.0], [3.0, 3.0]
    )
    assert rewards(batch) == [2.0, 5.0]  # 2 * -0.5 + 3
    assert np.isnan(batch.scores.values_BC[0, 0])


def test_an_imputed_value_is_weighted_but_not_transformed():
    halved = spec("a", 2.0, "impute", value=10.0, transforms=({"kind": "scale", "factor": 0.5},))
    batch = combined([halved], [None, 10.0])
    assert rewards(batch) == [20.0, 10.0]
    assert batch.columns_BC is not None
    np.testing.assert_array_equal(batch.columns_BC[:, 0], [np.nan, 5.0])


def test_fail_stops_and_says_why():
    with pytest.raises(
        RewardError,
        match=(
            r"reward 'b' gave no verdict for 1 of 2 responses and on_missing=fail: timeout: after"
            r" 10 s"
        ),
    ):
        combined([spec("a", 1.0), spec("b", 1.0, "fail")], [1.0, 1.0], [1.0, None])


def test_everything_missing_and_nothing_at_all():
    assert rewards_of([spec("a", 1.0)], [None, None]) == [None, None]
    for how in (
        "weighted_sum",
        "fold",
        "product",
        "min",
        "max",
        "soft_min",
        "lexicographic",
        "gate",
    ):
        assert rewards_of([spec("a", 1.0), spec("b", 1.0)], [], [], how=how) == []
        assert combined([spec("a", 1.0), spec("b", 1.0)], [], [], how=how).columns_BC.shape == (
            0,
            2,
        )  # type: ignore[union-attr]


def test_the_scores_are_not_changed():
    batch = combined([spec("a", 1.0, "impute", value=9.0)], [None, 1.0])
    assert [r.value for r in batch.scores.results[0]] == [None, 1.0]
