"""Importance weights, rejection and metrics of rollout correction, against numbers computed by
hand."""

from __future__ import annotations

import math

import pytest
import torch

from rmrl.algorithms.rollout_correction import correct
from rmrl.config.schema.algorithm import RolloutCorrectionConfig
from rmrl.errors import ConfigError

MASK_BT = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
RATIOS_BT = torch.tensor([[2.0, 4.0, 1.0], [0.5, 1.0, 1.0], [0.25, 1.0, 1.0]])
"""pi_old / pi_rollout. Sequences: 8, 0.5, 0.25; geometric means: sqrt(8) = 2.83, 0.79, 0.25."""
ROLLOUT_BT = torch.full((3, 3), -2.0).where(MASK_BT > 0, math.nan)
OLD_BT = (RATIOS_BT.log() - 2.0).where(MASK_BT > 0, -math.inf)


def corrected(**settings: object) -> tuple[torch.Tensor | None, torch.Tensor, dict[str, float]]:
    weights_BT, mask_BT, metrics = correct(
        OLD_BT, ROLLOUT_BT, MASK_BT, RolloutCorrectionConfig(**settings)
    )
    assert all(math.isfinite(value) for value in metrics.values())
    return (
        weights_BT,
        mask_BT,
        {name.removeprefix("rollout_correction/"): value for name, value in metrics.items()},
    )


def test_token_weights_are_truncated():
    weights_BT, mask_BT, metrics = corrected(rollout_is="token", rollout_is_threshold=3.0)
    torch.testing.assert_close(
        weights_BT, torch.tensor([[2.0, 3.0, 0.0], [0.5, 1.0, 1.0], [0.25, 0.0, 0.0]])
    )
    assert torch.equal(mask_BT, MASK_BT)
    assert metrics["truncated"] == pytest.approx(1 / 6)
    assert metrics["weight_mean"] == pytest.approx(7.75 / 6)
    assert metrics["weight_max"] == pytest.approx(3.0)
    # squares 4 + 9 + 0.25 + 1 + 1 + 0.0625
    assert metrics["ess"] == pytest.approx(7.75**2 / (6 * 15.3125))


def test_sequence_weights_are_the_same_for_every_token():
    weights_BT, _, metrics = corrected(rollout_is="sequence", rollout_is_threshold=5.0)
    torch.testing.assert_close(
        weights_BT, torch.tensor([[5.0, 5.0, 0.0], [0.5, 0.5, 0.5], [0.25, 0.0, 0.0]])
    )
    assert metrics["truncated"] == pytest.approx(2 / 6)


def test_normalisation_over_tokens_or_over_responses():
    by_token_BT, _, metrics = corrected(
        rollout_is="token", rollout_is_threshold=3.0, rollout_is_batch_normalize=True
    )
    torch.testing.assert_close(by_token_BT[0], torch.tensor([2.0, 3.0, 0.0]) * 6 / 7.75)
    assert metrics["weight_mean"] == pytest.approx(1.0)
    by_response_BT, _, _ = corrected(
        rollout_is="sequence", rollout_is_threshold=5.0, rollout_is_batch_normalize=True
    )
    torch.testing.assert_close(by_response_BT[:, 0], torch.tensor([5.0, 0.5, 0.25]) * 3 / 5.75)


@pytest.mark.parametrize(
    ("level", "kept"),
    [
        ("token", [[1, 0, 0], [1, 1, 1], [0, 0, 0]]),  # 4 and 0.25 are outside [1/3, 3]
        ("sequence", [[0, 0, 0], [1, 1, 1], [0, 0, 0]]),  # 8 and 0.25
        ("geometric", [[1, 1, 0], [1, 1, 1], [0, 0, 0]]),  # 2.83 is within
    ],
)
def test_rejection(level: str, kept: list[list[int]]):
    weights_BT, mask_BT, metrics = corrected(rollout_rs=level, rollout_rs_threshold=3.0)
    assert weights_BT is None
    assert mask_BT.tolist() == kept
    assert metrics["rejected"] == pytest.approx(1 - sum(map(sum, kept)) / 6)
    assert "weight_mean" not in metrics


def test_a_lower_bound_of_its_own():
    _, mask_BT, _ = corrected(
        rollout_rs="token", rollout_rs_threshold=3.0, rollout_rs_threshold_lower=0.6
    )
    assert mask_BT.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]


def test_what_is_rejected_has_no_weight_and_is_in_no_mean():
    weights_BT, mask_BT, metrics = corrected(
        rollout_is="token",
        rollout_is_threshold=3.0,
        rollout_rs="sequence",
        rollout_rs_threshold=3.0,
        rollout_is_batch_normalize=True,
    )
    assert mask_BT.sum() == 3
    torch.testing.assert_close(
        weights_BT, torch.tensor([[0.0] * 3, [0.6, 1.2, 1.2], [0.0] * 3])
    )  # 0.5 1 1 over their mean 2.5 / 3
    assert metrics["truncated"] == 0.0
    assert metrics["rejected"] == 0.5


def test_divergences_of_sampling_and_training():
    _, _, metrics = corrected()
    logs = [math.log(r) for r in (2, 4, 0.5, 1, 1, 0.25)]
    assert metrics["kl"] == pytest.approx(-sum(logs) / 6)
    assert metrics["k3"] == pytest.approx(
        sum(r - 1 for r in (2, 4, 0.5, 1, 1, 0.25)) / 6 - sum(logs) / 6
    )
    assert metrics["chi2"] == pytest.approx((4 + 16 + 0.25 + 1 + 1 + 0.0625) / 6 - 1)
    assert set(metrics) == {"kl", "k3", "chi2"}


def test_equal_probabilities_change_nothing():
    settings = RolloutCorrectionConfig(
        rollout_is="sequence", rollout_rs="geometric", rollout_is_batch_normalize=True
    )
    weights_BT, mask_BT, metrics = correct(ROLLOUT_BT, ROLLOUT_BT, MASK_BT, settings)
    assert torch.equal(weights_BT, MASK_BT)
    assert torch.equal(mask_BT, MASK_BT)
    assert metrics["rollout_correction/ess"] == 1.0
    assert metrics["rollout_correction/rejected"] == 0.0


def test_extreme_ratios_stay_finite():
    old_BT, rollout_BT = (
        torch.tensor([[0.0, -math.inf], [-900.0, -1.0]]),
        torch.tensor([[-800.0, -1.0], [0.0, -1.0]]),
    )
    for level in ("token", "sequence"):
        weights_BT, _, metrics = correct(
            old_BT, rollout_BT, torch.ones(2, 2), RolloutCorrectionConfig(rollout_is=level)
        )
        assert weights_BT.isfinite().all()
        assert weights_BT.max() == 2.0 if level == "token" else weights_BT.max() <= 2.0
        assert all(math.isfinite(value) for value in metrics.values())


def test_nothing_counted_and_nothing_kept():
    for settings in (
        RolloutCorrectionConfig(rollout_is="sequence", rollout_is_batch_normalize=True),
        RolloutCorrectionConfig(
            rollout_is="token", rollout_rs="token", rollout_is_batch_normalize=True
        ),
    ):
        for shape in ((2, 3), (0, 3), (2, 0)):
            weights_BT, mask_BT, metrics = correct(
                torch.zeros(shape), torch.zeros(shape), torch.zeros(shape), settings
            )
            assert weights_BT.shape == mask_BT.shape == shape
            assert all(value in (0.0, 1.0) for value in metrics.values())


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
def test_nothing_is_rejected_of_an_empty_mask(level: str):
    """It was 1 - 0 / 1, everything."""
    settings = RolloutCorrectionConfig(rollout_rs=level)
    for shape in ((2, 3), (0, 3), (2, 0)):
        _, _, metrics = correct(
            torch.zeros(shape), torch.zeros(shape), torch.zeros(shape), settings
        )
        assert metrics["rollout_correction/rejected"] == 0.0


def test_bad_settings_are_refused_together():
    with pytest.raises(ConfigError) as caught:
        corrected(rollout_is="tokens", rollout_rs="geo", rollout_is_threshold=0.0)
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match=r"rs_threshold_lower=2 .*rs_threshold=0\.5"):
        corrected(rollout_rs="token", rollout_rs_threshold=0.5)
    # Without rejection its bounds are not read, as in the check before the start.
    corrected(rollout_is="token", rollout_rs_threshold=0.5)
    corrected(rollout_is="token", rollout_rs_threshold_lower=3.0)


def test_divergences_of_ratios_whose_logarithms_do_not_cancel():
    """Ratios 2 and 4: KL = -(ln 2 + ln 4) / 2, k3 = (2 - 1 - ln 2 + 4 - 1 - ln 4) / 2."""
    old_BT = torch.tensor([[math.log(2.0), math.log(4.0)]])
    _, _, metrics = correct(old_BT, torch.zeros(1, 2), torch.ones(1, 2), RolloutCorrectionConfig())
    assert metrics["rollout_correction/kl"] == pytest.approx(-math.log(8) / 2)
    assert metrics["rollout_correction/k3"] == pytest.approx((4 - math.log(8)) / 2)


def test_the_bounds_themselves_are_acceptable_and_not_truncated():
    ratios_BT = torch.tensor([[0.5, 2.0]])  # powers of 2: exact in float32
    settings = RolloutCorrectionConfig(
        rollout_rs="token", rollout_rs_threshold=2.0, rollout_rs_threshold_lower=0.5,
        rollout_is="token", rollout_is_threshold=2.0,
    )  # fmt: skip
    logarithms_BT = torch.tensor([[math.log(0.5), math.log(2.0)]])
    assert logarithms_BT.exp().tolist() == ratios_BT.tolist()
    weights_BT, mask_BT, metrics = correct(
        logarithms_BT, torch.zeros(1, 2), torch.ones(1, 2), settings
    )
    assert mask_BT.tolist() == [[1.0, 1.0]]
    assert weights_BT.tolist() == [[0.5, 2.0]]
    assert metrics["rollout_correction/truncated"] == 0.0


def test_one_ratio_may_be_the_only_acceptable_one():
    settings = RolloutCorrectionConfig(
        rollout_rs="token", rollout_rs_threshold=1.0, rollout_rs_threshold_lower=1.0
    )
    _, mask_BT, _ = correct(
        torch.tensor([[0.0, 0.5]]), torch.zeros(1, 2), torch.ones(1, 2), settings
    )
    assert mask_BT.tolist() == [[1.0, 0.0]]


def test_the_ratio_of_a_long_response_is_bounded_on_both_sides():
    """100 tokens of exp(-15) and of exp(15): sums -1500 and 1500, bounded to -20 and 20."""
    old_BT = torch.cat([torch.full((1, 100), -15.0), torch.full((1, 100), 15.0)])
    settings = RolloutCorrectionConfig(rollout_is="sequence", rollout_is_threshold=1e12)
    weights_BT, _, _ = correct(old_BT, torch.zeros(2, 100), torch.ones(2, 100), settings)
    assert weights_BT[:, 0].tolist() == pytest.approx([math.exp(-20), math.exp(20)], rel=1e-5)


def test_a_wholly_rejected_response_is_in_no_mean_over_responses():
    """Ratios 8 (rejected) and 0.5: the mean is that of the second alone."""
    settings = RolloutCorrectionConfig(
        rollout_is="sequence", rollout_is_threshold=10.0, rollout_is_batch_normalize=True,
        rollout_rs="sequence", rollout_rs_threshold=4.0,
    )  # fmt: skip
    old_BT = torch.tensor([[math.log(8.0)], [math.log(0.5)]])
    weights_BT, _, _ = correct(old_BT, torch.zeros(2, 1), torch.ones(2, 1), settings)
    assert weights_BT.flatten().tolist() == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"rollout_is": "tokens"},
            "algorithm.rollout_correction.rollout_is='tokens': not a choice; did you mean 'token'?",
        ),
        (
            {"rollout_rs": "tokens"},
            "algorithm.rollout_correction.rollout_rs='tokens': not a choice; did you mean 'token'?",
        ),
        ({"rollout_is_threshold": 0.0}, "algorithm.rollout_correction.rollout_is_threshold=0.0"),
        ({"rollout_rs_threshold": 0.0}, "algorithm.rollout_correction.rollout_rs_threshold=0.0"),
    ],
)
def test_a_refusal_names_the_key(settings: dict[str, object], text: str):
    with pytest.raises(ConfigError) as caught:
        corrected(**settings)
    assert text in str(caught.value)


def test_icepop_gives_a_ratio_outside_its_band_no_weight_and_keeps_it_in_the_mask():
    weights_BT, mask_BT, metrics = corrected(
        rollout_is="token",
        rollout_is_threshold=3.0,
        rollout_is_threshold_lower=0.5,
        rollout_is_outside="zero",
    )
    # ratios 2, 4 | 0.5, 1, 1 | 0.25: 4 and 0.25 lie outside [0.5, 3]
    torch.testing.assert_close(
        weights_BT, torch.tensor([[2.0, 0.0, 0.0], [0.5, 1.0, 1.0], [0.0, 0.0, 0.0]])
    )
    assert torch.equal(mask_BT, MASK_BT)
    assert metrics["truncated"] == pytest.approx(2 / 6)


def test_a_lower_bound_lifts_small_weights():
    weights_BT, _, metrics = corrected(
        rollout_is="token", rollout_is_threshold=3.0, rollout_is_threshold_lower=0.5
    )
    torch.testing.assert_close(
        weights_BT, torch.tensor([[2.0, 3.0, 0.0], [0.5, 1.0, 1.0], [0.5, 0.0, 0.0]])
    )
    assert metrics["truncated"] == pytest.approx(2 / 6)


def test_without_a_lower_bound_zero_masks_large_ratios_alone():
    weights_BT, _, _ = corrected(
        rollout_is="sequence", rollout_is_threshold=5.0, rollout_is_outside="zero"
    )
    # products 8, 0.5, 0.25
    torch.testing.assert_close(
        weights_BT, torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.25, 0.0, 0.0]])
    )


def test_a_lower_bound_above_the_upper_one_is_refused():
    with pytest.raises(ConfigError, match=r"rollout_is_threshold_lower=4 is above"):
        corrected(rollout_is="token", rollout_is_threshold=3.0, rollout_is_threshold_lower=4.0)
