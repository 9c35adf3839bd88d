"""ReMax against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from rmrl.algorithms.advantages.remax import remax
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.types import AdvantageInputs

CONFIG = AlgorithmConfig(gamma=0.5)  # not read
MASK_BT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])


def inputs(baselines: list[float], token_rewards_BT: torch.Tensor | None = None) -> AdvantageInputs:
    return AdvantageInputs(
        rewards_B=torch.tensor([1.0, 0.0, 5.0]),
        group_ids_B=torch.tensor([0, 0, 1]),
        response_mask_BT=MASK_BT,
        token_rewards_BT=token_rewards_BT,
        baseline_rewards_B=torch.tensor(baselines),
    )


def test_the_greedy_reward_is_the_baseline_of_every_token():
    found = remax(inputs([0.25, 0.25, 3.0]), settings=CONFIG)
    assert found.advantages_BT.tolist() == [
        [0.75, 0.75, 0.75],
        [-0.25, 0.0, -0.25],
        [2.0, 2.0, 0.0],
    ]
    assert found.metrics["baseline/mean"] == pytest.approx(3.5 / 3)
    assert found.metrics["baseline/missing"] == 0.0


def test_token_rewards_count_from_where_they_stand():
    penalty_BT = torch.tensor([[-0.5, 0.0, -0.25], [0.0, 99.0, 0.0], [0.0, 0.0, 99.0]])
    # row 0: 1 - 0.25 on the last token, nothing on the second, -0.5 on the first
    found_BT = remax(inputs([0.0, 0.0, 5.0], penalty_BT), settings=CONFIG).advantages_BT
    assert found_BT.tolist() == [[0.25, 0.75, 0.75], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_a_row_without_a_greedy_reward_teaches_nothing():
    found = remax(inputs([0.25, 0.25, math.nan]), settings=CONFIG)
    assert found.advantages_BT.tolist() == [
        [0.75, 0.75, 0.75],
        [-0.25, 0.0, -0.25],
        [0.0, 0.0, 0.0],
    ]
    assert found.metrics["baseline/missing"] == pytest.approx(1 / 3)
    assert found.metrics["baseline/mean"] == 0.25
    nothing = remax(inputs([math.nan] * 3), settings=CONFIG)
    assert nothing.advantages_BT.abs().max() == 0
    assert nothing.metrics["baseline/mean"] == 0.0


def test_without_greedy_responses_it_says_what_to_use():
    without = AdvantageInputs(
        rewards_B=torch.ones(1), group_ids_B=torch.zeros(1), response_mask_BT=torch.ones(1, 1)
    )
    with pytest.raises(ConfigError, match=r"remax .*greedy response.*adv_estimator=grpo"):
        remax(without, settings=CONFIG)
