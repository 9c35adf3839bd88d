"""MaxRL against numbers computed by hand, and against the gradient of the likelihood it stands
for."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from rmrl.algorithms.advantages.maxrl import maxrl
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs


def inputs(rewards: list[float], groups: list[int], **extra: torch.Tensor) -> AdvantageInputs:
    mask_BT = torch.ones(len(rewards), 2)
    return AdvantageInputs(
        rewards_B=torch.tensor(rewards),
        group_ids_B=torch.tensor(groups),
        **{"response_mask_BT": mask_BT, **extra},
    )


def advantages(rewards: list[float], groups: list[int]) -> list[float]:
    return maxrl(inputs(rewards, groups), settings=AlgorithmConfig()).advantages_BT[:, 0].tolist()


def test_the_lead_over_the_mean_is_divided_by_the_mean():
    # mean 1 / 4: (1 - 1/4) / (1/4) = 3, (0 - 1/4) / (1/4) = -1
    assert advantages([0.0, 1.0, 0.0, 0.0], [0] * 4) == [-1, 3, -1, -1]


def test_a_rare_success_weighs_more_than_a_common_one():
    # group 0: mean 1/4; group 1: mean 3/4, (1 - 3/4) / (3/4) = 1/3, (0 - 3/4) / (3/4) = -1
    values = advantages([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0], [0] * 4 + [1] * 4)
    assert values == pytest.approx([3, -1, -1, -1, 1 / 3, 1 / 3, 1 / 3, -1])


def test_a_group_without_a_success_has_advantage_zero():
    result = maxrl(
        inputs([0.0, 0.0, 1.0, 0.0, -1.0, -2.0], [0, 0, 1, 1, 2, 2]), settings=AlgorithmConfig()
    )
    assert result.advantages_BT[:, 0].tolist() == [0, 0, 1, -1, 0, 0]
    assert result.metrics["maxrl/no_success"] == pytest.approx(4 / 6)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_expected_gradient_is_that_of_the_sum_of_pass_at_k(size: int):
    """One token with probability p of success: the mean over samples of A times the score equals
    d/dp of sum over k of pass@k / k = sum over k < N of (1 - p)^k."""
    p = 0.3
    expected = sum((1 - p) ** k for k in range(size))
    total = 0.0
    for outcome in product([0, 1], repeat=size):
        successes = sum(outcome)
        chance = p**successes * (1 - p) ** (size - successes)
        scores = [1 / p if success else -1 / (1 - p) for success in outcome]
        values = advantages([float(success) for success in outcome], [0] * size)
        total += chance * sum(a * s for a, s in zip(values, scores, strict=True)) / size
    # groups without a success lose their baseline as well, which costs the term of k = N
    assert total == pytest.approx(expected - (1 - p) ** (size - 1), rel=1e-5, abs=1e-6)


def test_token_rewards_are_refused():
    with pytest.raises(ConfigError, match="maxrl takes no token rewards"):
        maxrl(
            inputs([0.0, 1.0], [0, 0], token_rewards_BT=torch.ones(2, 2)),
            settings=AlgorithmConfig(),
        )
