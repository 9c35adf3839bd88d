"""PF-PPO: probabilities by hand, and draws that follow them."""

from __future__ import annotations

import numpy as np
import pytest

from rmrl.algorithms.pf_ppo import draw, probabilities
from rmrl.config.schema.algorithm import PFPPOConfig
from rmrl.errors import ConfigError

REWARDS_B = np.asarray([1.0, -3.0, 0.0, 2.0, 2.0])


def chances(
    method: str,
    rewards_B: np.ndarray = REWARDS_B,
    groups: list[int] | None = None,
    **changes: float,
) -> list[float]:
    config = PFPPOConfig(reweight_method=method, **changes)
    return probabilities(
        rewards_B, config, group_ids_B=None if groups is None else np.asarray(groups)
    ).tolist()


def test_pow():
    assert chances("pow", weight_pow=2.0) == pytest.approx([1 / 18, 9 / 18, 0, 4 / 18, 4 / 18])
    assert chances("pow", weight_pow=1.0) == pytest.approx([1 / 8, 3 / 8, 0, 2 / 8, 2 / 8])
    assert chances("pow", weight_pow=0.0) == pytest.approx([0.2] * 5)
    assert chances("pow", np.zeros(4)) == [0.25] * 4
    assert chances("pow", np.asarray([1e200, 1e200]), weight_pow=9.0) == [0.5, 0.5]


def test_max_min_of_the_batch_and_of_groups():
    assert chances("max_min") == pytest.approx([0, 0.5, 0, 0.25, 0.25])
    # group 7: rows 0 1 2, worst -3, best 1, three fifths of the draws; group 8: two equal rows
    assert chances("max_min", groups=[7, 7, 7, 8, 8]) == pytest.approx([0.3, 0.3, 0, 0.2, 0.2])


def test_max_random_of_the_batch_and_of_groups():
    assert chances("max_random") == pytest.approx([1 / 6, 1 / 6, 1 / 6, 0.25, 0.25])
    assert chances("max_random", groups=[7, 7, 7, 8, 8]) == pytest.approx(
        [0.3, 0.15, 0.15, 0.2, 0.2]
    )


NOISY_B = np.asarray([0.1 + 0.2, 0.3, 0.3, 0.7 - 0.4])
"""0.30000000000000004, 0.3, 0.3 and 0.29999999999999993: one reward, added up in different
orders."""


@pytest.mark.parametrize("method", ["max_min", "max_random"])
def test_rounding_noise_breaks_no_tie_among_equal_rewards(method: str):
    assert chances(method, NOISY_B) == pytest.approx([0.25] * 4)
    one_float32_apart_B = 3e5 + np.asarray([0.0, 0.03125, 0.0, 0.0])
    assert chances(method, one_float32_apart_B) == pytest.approx([0.25] * 4)


def test_rounding_noise_breaks_no_tie_at_the_ends():
    rewards_B = np.concatenate([NOISY_B, [0.0, 1e-9, 0.2]])
    assert chances("max_min", rewards_B) == pytest.approx([0.125] * 4 + [0.25, 0.25, 0.0])
    assert chances("max_random", rewards_B) == pytest.approx([0.125] * 4 + [1 / 6] * 3)


def test_rounding_noise_around_0_draws_no_row_alone():
    assert chances("pow", np.asarray([0.1 + 0.2 - 0.3, 0.0, 0.0, 0.0])) == [0.25] * 4


def test_draws_follow_the_probabilities_and_the_generator():
    config = PFPPOConfig(reweight_method="pow", weight_pow=1.0)
    rewards_B = np.tile(REWARDS_B, 4000)
    index_B = draw(rewards_B, config, np.random.default_rng(3))
    assert index_B.dtype == np.int64
    assert index_B.shape == rewards_B.shape
    shares = np.bincount(index_B % 5, minlength=5) / len(index_B)
    assert shares == pytest.approx([1 / 8, 3 / 8, 0, 2 / 8, 2 / 8], abs=0.02)
    assert len(np.unique(index_B)) < len(index_B)  # with replacement
    np.testing.assert_array_equal(index_B, draw(rewards_B, config, np.random.default_rng(3)))
    assert not np.array_equal(index_B, draw(rewards_B, config, np.random.default_rng(4)))


def test_no_rows():
    assert draw(np.zeros(0), PFPPOConfig(), np.random.default_rng(0)).tolist() == []
    assert chances("pow", np.zeros(0)) == chances("max_min", np.zeros(0)) == []


@pytest.mark.parametrize(
    ("method", "changes", "named"),
    [
        ("max_mn", {}, "reweight_method: .*'max_mn'.*'max_min'"),
        ("pow", {"weight_pow": -1.0}, r"weight_pow=-1\.0"),
    ],
)
def test_bad_settings_are_refused(method: str, changes: dict[str, float], named: str):
    with pytest.raises(ConfigError, match=named):
        chances(method, **changes)


def test_draws_are_those_of_the_groups():
    """Group 7: two rows that differ, group 8: two equal rows. Row 0 of group 7 is its worst and its
    batch's; over the whole batch rows 2 and 3 would share what row 0 has here."""
    rewards_B = np.asarray([0.0, 1.0, 0.5, 0.5])
    groups_B = np.asarray([7, 7, 8, 8])
    config = PFPPOConfig(reweight_method="max_min")
    index_B = draw(
        np.tile(rewards_B, 1000), config, np.random.default_rng(0),
        group_ids_B=np.repeat(np.arange(1000), 4) * 10 + np.tile(groups_B, 1000),
    )  # fmt: skip
    shares = np.bincount(index_B % 4, minlength=4) / len(index_B)
    assert shares == pytest.approx([0.25] * 4, abs=0.03)
    alone = draw(np.tile(rewards_B, 1000), config, np.random.default_rng(0))
    assert np.bincount(alone % 4, minlength=4)[2:].tolist() == [0, 0]


def test_chances_of_integer_rewards_and_of_float_ids():
    assert chances("pow", np.asarray([1, 3])) == pytest.approx([0.1, 0.9])
    config = PFPPOConfig(reweight_method="max_min")
    by_float = probabilities(
        np.asarray([0, 1, 5, 5]), config, group_ids_B=np.asarray([7.0, 7.0, 8.0, 8.0])
    )
    assert by_float.tolist() == pytest.approx([0.25] * 4)
