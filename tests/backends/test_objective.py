"""Positions, weights and metric sums by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from rmrl.backends.objective import response_tokens, weight_and_tokens, weighted_loss
from rmrl.backends.totals import Totals
from rmrl.types import Ragged, TrainBatch
from tests.backends.policies import make_settings

BATCH = TrainBatch(
    tokens=Ragged.of([[10, 11, 12, 13], [20, 21]], np.int64),
    response_mask=Ragged.of([[1.0, 0.0], [1.0]], np.float32),
    advantages=Ragged.of([[2.0, 2.0], [-1.0]], np.float32),
)


def settings(**actor: object):
    return make_settings(Path("unused"), **{"use_kl_loss": False, "entropy_coeff": 0.0, **actor})


def test_positions_are_those_before_each_response_token():
    tokens = response_tokens(BATCH, torch.device("cpu"))
    assert tokens.input_ids_BS.tolist() == [[10, 11, 12, 13], [20, 21, 0, 0]]
    assert tokens.positions_N.tolist() == [1, 2, 4]
    assert tokens.targets_N.tolist() == [12, 13, 21]


def test_weights_count_tokens_or_sequences():
    assert weight_and_tokens(BATCH, settings()) == (2.0, 2.0)
    assert weight_and_tokens(BATCH.select([0]), settings(loss_agg_mode="seq-mean-token-mean")) == (1.0, 1.0)


def test_first_loss_is_minus_the_advantages():
    logprobs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    loss, sums = weighted_loss(BATCH, logprobs, None, settings=settings())
    assert loss.item() == pytest.approx(-2.0 + 1.0)  # ratio 1; the token that does not count adds nothing
    loss.backward()
    assert logprobs.grad.tolist() == [-2.0, 0.0, 1.0]
    assert sums["ratio"].item() == 2.0


def test_old_logprobs_make_the_ratio():
    old = Ragged.of([[-1.0 - math.log(1.1), 0.0], [-3.0]], np.float32)
    batch = TrainBatch(tokens=BATCH.tokens, response_mask=BATCH.response_mask, advantages=BATCH.advantages, old_logprobs=old)
    loss, _ = weighted_loss(batch, torch.tensor([-1.0, -2.0, -3.0]), None, settings=settings())
    assert loss.item() == pytest.approx(-1.1 * 2.0 + 1.0, rel=1e-6)


def test_totals_are_means_over_tokens_and_steps():
    totals = Totals()
    totals.add_sums(torch.tensor(0.5), {"kl": torch.tensor(3.0)})
    totals.add_sums(torch.tensor(0.25), {"kl": torch.tensor(1.0)})
    totals.add_step(lr=0.1, grad_norm=4.0, tokens=10)
    totals.add_step(lr=0.2, grad_norm=None, tokens=10)
    assert totals.metrics(lambda sums: [2 * value for value in sums]) == {  # as if another process had the same
        "policy/kl": 8 / 20, "policy/loss": 1.5 / 2, "policy/grad_norm": 4.0, "policy/lr": 0.2, "policy/tokens": 20.0,
        "policy/skipped_updates": 1.0,
    }  # fmt: skip


def test_without_old_logprobs_the_update_measures_how_far_the_sampler_is_off():
    rollout = Ragged.of([[-1.5, -9.0], [-2.75]], np.float32)
    batch = TrainBatch(tokens=BATCH.tokens, response_mask=BATCH.response_mask, advantages=BATCH.advantages, rollout_logprobs=rollout)
    logprobs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    _, sums = weighted_loss(batch, logprobs, None, settings=settings())
    # |-1 + 1.5| + |-3 + 2.75|; the middle token does not count
    assert sums["rollout_logprob_diff"].item() == pytest.approx(0.75)
    assert not sums["rollout_logprob_diff"].requires_grad
    assert "rollout_logprob_diff" not in weighted_loss(BATCH, logprobs, None, settings=settings())[1]
