"""GPG's scaled group advantages against numbers computed by hand."""

from __future__ import annotations

import pytest
import torch

from rmrl.algorithms.advantages.gpg import gpg
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs


def estimate(rewards: list[float], groups: list[int], **extra: torch.Tensor):
    inputs = AdvantageInputs(
        rewards_B=torch.tensor(rewards),
        group_ids_B=torch.tensor(groups),
        response_mask_BT=torch.ones(len(rewards), 1),
        **extra,
    )
    return gpg(inputs, settings=AlgorithmConfig())


def test_rows_without_contrast_are_made_up_for():
    # 8 rows, 5 of them in groups that are all equal: alpha = 8 / 3; the last group is centred on 1
    found = estimate([1, 1, 1, 0, 0, 0.0, 1.0, 2.0], [0, 0, 0, 1, 1, 2, 2, 2])
    torch.testing.assert_close(
        found.advantages_BT[:, 0], torch.tensor([0, 0, 0, 0, 0, -8 / 3, 0, 8 / 3])
    )
    assert found.metrics["gpg/alpha"] == pytest.approx(8 / 3)
    assert found.metrics["group/constant_fraction"] == pytest.approx(2 / 3)


def test_with_contrast_everywhere_it_is_the_centred_reward():
    found = estimate([0.0, 4.0, 1.0, 3.0], [0, 0, 1, 1])
    assert found.advantages_BT[:, 0].tolist() == [-2, 2, -1, 1]
    assert found.metrics["gpg/alpha"] == 1.0


def test_without_any_contrast_everything_is_zero():
    assert estimate([1.0, 1.0, 3.0], [0, 0, 1]).advantages_BT.tolist() == [[0], [0], [0]]


def test_token_rewards_join_the_reward():
    found = estimate([1.0, 1.0], [0, 0], token_rewards_BT=torch.tensor([[-1.0], [0.0]]))
    assert found.advantages_BT[:, 0].tolist() == [-0.5, 0.5]
