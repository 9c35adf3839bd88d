"""product, min, max, soft_min, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from rmrl.errors import ConfigError
from tests.rewards.combine.parts import combined, rewards_of, spec


def test_product_of_weighted_scores():
    specs = [spec("a", 2.0), spec("b", 0.5), spec("c", -1.0)]
    # 2*3 * 0.5*4 * -1*1 = -12;  2*1 * 0.5*0 * ... = 0
    assert rewards_of(specs, [3.0, 1.0], [4.0, 0.0], [1.0, 7.0], how="product") == [-12.0, 0.0]


def test_a_product_that_is_zero_stays_zero_whatever_was_not_asked_or_failed():
    specs = [spec("a"), spec("b"), spec("c", policy="fail")]
    assert rewards_of(
        specs, [0.0, 0.0, 2.0], [3.0, None, 3.0], ["skipped", None, "skipped"], how="product"
    ) == [0.0, 0.0, 6.0]
    # not 0: it could have been anything
    assert rewards_of(specs[:2], [2.0], [None], how="product") == [None]


def test_a_product_of_nothing_is_zero_not_one():
    # b is only watched, and a is behind a closed gate
    assert rewards_of([spec("a"), spec("b", 0.0)], ["skipped"], [5.0], how="product") == [0.0]


def test_a_watched_component_is_no_factor_and_no_minimum():
    specs = [spec("a"), spec("b", 0.0)]
    for how in ("product", "min", "max", "soft_min"):
        assert rewards_of(specs, [3.0, -3.0], [100.0, -100.0], how=how) == [3.0, -3.0]


def test_min_and_max_compare_weighted_scores():
    specs = [spec("a", 1.0), spec("b", 0.5), spec("cost", -1.0)]
    # 1*1, 0.5*4, -1*3 -> -3 and 2;  1*-1, 0.5*-4, -1*-5 -> -2 and 5
    columns = ([1.0, -1.0], [4.0, -4.0], [3.0, -5.0])
    assert rewards_of(specs, *columns, how="min") == [-3.0, -2.0]
    assert rewards_of(specs, *columns, how="max") == [2.0, 5.0]


def test_min_and_max_of_those_present():
    specs = [spec("a"), spec("b")]
    assert rewards_of(specs, [3.0, "skipped"], ["skipped", "skipped"], how="min") == [3.0, 0.0]
    assert rewards_of(specs, [-3.0, "skipped"], ["skipped", -1.0], how="max") == [-3.0, -1.0]


def test_soft_min_by_hand():
    # shares 1/4 and 3/4: -(1/2) log(e^-2 / 4 + 3 e^-6 / 4)
    expected = -0.5 * math.log(0.25 * math.exp(-2 * 1) + 0.75 * math.exp(-2 * 3))
    assert rewards_of(
        [spec("a", 1.0), spec("b", 3.0)], [1.0], [3.0], how="soft_min", soft_min_beta=2.0
    ) == [round(expected, 9)]


def test_soft_min_lies_between_the_weighted_mean_and_the_minimum():
    specs = [spec("a", 1.0), spec("b", 3.0), spec("watched", 0.0)]
    columns = ([1.0], [3.0], [-50.0])
    # (1 * 1 + 3 * 3) / 4
    assert rewards_of(specs, *columns, how="soft_min", soft_min_beta=0.0) == [2.5]
    assert rewards_of(specs, *columns, how="soft_min", soft_min_beta=1e-12) == [2.5]
    assert rewards_of(specs, *columns, how="soft_min", soft_min_beta=1e12) == [1.0]
    # small beta: mean - beta / 2 * variance; variance = 1/4 * 1.5^2 + 3/4 * 0.5^2 = 0.75
    [value] = rewards_of(specs, *columns, how="soft_min", soft_min_beta=1e-4)
    assert value == pytest.approx(2.5 - 0.5e-4 * 0.75, abs=1e-8)


def test_soft_min_of_the_smallest_beta_is_the_mean():
    """5e-324 times a share rounds to 5e-324 again, so the share would count as 1: the mean of 0 and 1
    with weights 1 and 2 is 2/3."""
    specs = [spec("a", 1.0), spec("b", 2.0)]
    for beta in (5e-324, 1e-310, 1e-290):
        batch = combined(specs, [0.0], [1.0], how="soft_min", soft_min_beta=beta)
        assert batch.rewards_B.tolist() == [pytest.approx(2 / 3, abs=1e-15)]


def test_soft_min_neither_overflows_nor_loses_its_digits():
    specs = [spec("a", 1e-20), spec("b", 1.0)]
    [value] = rewards_of(specs, [-1e5], [1e5], how="soft_min", soft_min_beta=100.0)
    assert value == pytest.approx(-1e5 - math.log(1e-20) / 100)  # the minimum, less its share's log
    assert rewards_of([spec("a"), spec("b")], [7.0], [7.0], how="soft_min") == [7.0]


def test_soft_min_refuses_negative_weights():
    with pytest.raises(ConfigError, match="soft_min with a negative weight"):
        combined([spec("a"), spec("b", -1.0)], [1.0], [1.0], how="soft_min")


def test_soft_min_of_a_row_does_not_depend_on_the_others():
    """The rows together have the value that each has alone; one of them lacks everything."""
    specs = [spec("a", 0.2), spec("b", 0.3, "renormalize")]
    columns = ([1.0, -2.0, "skipped", 4.0], [3.0, 0.5, "skipped", None])
    for beta in (0.0, 0.1, 0.5, 50.0):
        together = rewards_of(specs, *columns, how="soft_min", soft_min_beta=beta)
        alone = []
        for row in range(4):
            cells = [[column[row]] for column in columns]
            alone += rewards_of(specs, *cells, how="soft_min", soft_min_beta=beta)
        assert together == alone
        assert together[2:] == [0.0, 4.0]
    # shares .4 and .6 of the mean: 1 + .6 * 2
    assert rewards_of(specs, [1.0], [3.0], how="soft_min", soft_min_beta=0.0) == [2.2]
