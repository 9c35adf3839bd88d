"""Tokens without a policy loss: low entropy, and bad responses far from the policy that sampled."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rmrl.algorithms.losses.total import total_loss
from rmrl.config.schema.actor import ActorConfig
from rmrl.errors import ConfigError
from rmrl.types import LossInputs

MASK_BT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])


def inputs(**changes: torch.Tensor) -> LossInputs:
    batch = LossInputs(
        logprobs_BT=torch.full((2, 3), -1.0),
        old_logprobs_BT=torch.full((2, 3), -1.0),
        advantages_BT=torch.tensor([[1.0] * 3, [-1.0] * 3]),
        mask_BT=MASK_BT,
        ref_logprobs_BT=torch.full((2, 3), -1.0),
        entropy_BT=torch.tensor([[0.1, 0.5, 0.9], [0.3, 0.7, math.nan]]),
    )
    return replace(batch, **changes)


def policy_loss(batch: LossInputs, **settings: object) -> tuple[torch.Tensor, dict[str, float]]:
    loss_BT, sums = total_loss(batch, settings=ActorConfig(**settings))
    return loss_BT, {name: value.item() for name, value in sums.items()}


def test_the_tokens_of_the_largest_entropy_train():
    loss_BT, sums = policy_loss(inputs(), top_entropy_quantile=0.5)
    # 0.1 0.3 0.5 0.7 0.9: the quantile 0.5 is 0.5
    assert loss_BT.tolist() == [[0, -1, -1], [0, 1, 0]]
    assert sums["low_entropy"] == 2


def test_the_quantile_lies_between_two_tokens():
    # 1 - 0.2: position 3.2 of 0..4, so 0.7 + 0.2 * 0.2 = 0.74
    loss_BT, _ = policy_loss(inputs(), top_entropy_quantile=0.2)
    assert loss_BT.tolist() == [[0, 0, -1], [0, 0, 0]]


def test_equal_entropies_all_train():
    batch = inputs(entropy_BT=torch.full((2, 3), 0.4))
    loss_BT, sums = policy_loss(batch, top_entropy_quantile=0.2)
    assert loss_BT.tolist() == [[-1, -1, -1], [1, 1, 0]]
    assert sums["low_entropy"] == 0


def test_the_other_terms_keep_every_token():
    settings = {"top_entropy_quantile": 0.2, "entropy_coeff": 1.0}
    loss_BT, sums = policy_loss(inputs(), **settings)
    torch.testing.assert_close(loss_BT[1], torch.tensor([-0.3, -0.7, 0.0]))
    assert sums["entropy"] == pytest.approx(2.5)


def test_a_share_without_entropies_is_refused():
    batch = replace(inputs(), entropy_BT=None)
    with pytest.raises(ConfigError, match=r"top_entropy_quantile=0\.2 needs the entropy"):
        policy_loss(batch, top_entropy_quantile=0.2)


def test_a_bad_response_far_from_the_sampler_has_no_policy_loss():
    # mean log mu - log pi: row 0 (1 + 1 + 1) / 3 = 1, good; row 1 (0.2 + 0.6) / 2 = 0.4, bad
    old_BT = torch.tensor([[0.0, 0.0, 0.0], [-0.8, -0.4, math.nan]])
    batch = inputs(old_logprobs_BT=old_BT)
    kept_BT, sums = policy_loss(batch, off_policy_mask_threshold=0.41)
    assert (kept_BT != 0).tolist() == [[True] * 3, [True, True, False]]
    assert sums["off_policy"] == 0
    dropped_BT, sums = policy_loss(batch, off_policy_mask_threshold=0.39)
    assert (dropped_BT != 0).tolist() == [[True] * 3, [False] * 3]
    assert sums["off_policy"] == 2


def test_a_bad_response_that_has_become_likelier_trains():
    batch = inputs(old_logprobs_BT=torch.full((2, 3), -9.0))
    _, sums = policy_loss(batch, off_policy_mask_threshold=0.01)
    assert sums["off_policy"] == 0


def test_the_distance_is_from_the_rollout_engine_where_it_is_known():
    batch = inputs(rollout_logprobs_BT=torch.zeros(2, 3), rollout_weights_BT=torch.ones(2, 3))
    _, sums = policy_loss(batch, off_policy_mask_threshold=0.5)
    assert sums["off_policy"] == 2


def test_on_policy_no_response_is_masked():
    loss_BT, _ = policy_loss(inputs(), off_policy_mask_threshold=1e-9)
    assert loss_BT.tolist() == [[-1, -1, -1], [1, 1, 0]]
