"""Positions, weights and metric sums by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmrl.backends.objective import (
    divisor,
    response_tokens,
    value_metrics,
    weight_and_tokens,
    weighted_loss,
    weighted_value_loss,
)
from rmrl.backends.totals import Totals
from rmrl.models.sequence_parallel import Slices
from rmrl.types import Ragged, TrainBatch
from tests.backends.policies import make_critic_settings, make_settings

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


def test_packed_rows_share_one_sequence_and_their_positions_restart():
    tokens = response_tokens(BATCH, torch.device("cpu"), packed=True)
    assert tokens.input_ids_BS.tolist() == [[10, 11, 12, 13, 20, 21]]
    assert tokens.layout is not None
    assert tokens.layout.position_ids_1S.tolist() == [[0, 1, 2, 3, 0, 1]]
    assert tokens.layout.boundaries.tolist() == [0, 4, 6]
    assert tokens.layout.boundaries.dtype == torch.int32
    assert tokens.layout.longest == 4
    assert tokens.positions_N.tolist() == [1, 2, 4]
    assert tokens.targets_N.tolist() == [12, 13, 21]
    assert response_tokens(BATCH, torch.device("cpu")).layout is None


def test_packed_rows_are_filled_up_to_a_multiple_by_a_row_of_its_own():
    tokens = response_tokens(BATCH, torch.device("cpu"), packed=True, multiple=4)
    assert tokens.input_ids_BS.tolist() == [[10, 11, 12, 13, 20, 21, 0, 0]]
    assert tokens.layout is not None
    assert tokens.layout.position_ids_1S.tolist() == [[0, 1, 2, 3, 0, 1, 0, 1]]
    assert tokens.layout.boundaries.tolist() == [0, 4, 6, 8]
    assert tokens.positions_N.tolist() == [1, 2, 4]


@pytest.mark.parametrize(
    ("rank", "tokens", "places", "before", "targets"),
    [(0, [10, 11], [0], [1], [12]), (1, [12, 13], [1], [0], [13]), (2, [20, 21], [2], [0], [21]), (3, [0, 0], [], [0], [0])],
)  # fmt: skip
def test_processes_that_share_packed_rows_have_their_part(
    rank: int, tokens: list[int], places: list[int], before: list[int], targets: list[int]
):
    """The fourth has filling alone, and one position all the same."""
    group: Any = None
    slices = Slices(group, 4, rank)
    own = response_tokens(BATCH, torch.device("cpu"), packed=True, multiple=4, slices=slices)
    assert own.input_ids_BS.tolist() == [tokens]
    assert own.layout is not None
    assert own.layout.position_ids_1S.tolist() == [[[0, 1], [2, 3], [0, 1], [0, 1]][rank]]
    assert own.layout.boundaries.tolist() == [0, 4, 6, 8]
    assert own.index_n is not None
    assert own.index_n.tolist() == places
    assert (own.positions_N.tolist(), own.targets_N.tolist()) == (before, targets)


def test_weights_count_tokens_or_sequences():
    assert weight_and_tokens(BATCH, settings()) == (2.0, 2.0)
    assert weight_and_tokens(BATCH.select([0]), settings(loss_agg_mode="seq-mean-token-mean")) == (
        1.0,
        1.0,
    )


def test_token_sum_divides_by_one():
    summed = settings(loss_agg_mode="token-sum")
    assert weight_and_tokens(BATCH, summed) == (2.0, 2.0)
    assert divisor(2.0, summed) == 1.0
    assert divisor(2.0, settings()) == 2.0


def test_value_loss_and_its_metrics_by_hand():
    critic = make_critic_settings(Path("unused"))  # value clip 0.2
    old, returns = (
        Ragged.of([[0.0, 0.0], [1.0]], np.float32),
        Ragged.of([[1.0, 9.0], [3.0]], np.float32),
    )
    batch = TrainBatch(
        tokens=BATCH.tokens, response_mask=BATCH.response_mask, values=old, returns=returns
    )
    values = torch.tensor([0.5, 5.0, 1.1], requires_grad=True)
    loss, sums = weighted_value_loss(batch, values, settings=critic)
    # 0.5 is clipped to 0.2: (0.2 - 1)^2 / 2 = 0.32; 1.1 is not: (1.1 - 3)^2 / 2 = 1.805; the middle
    # token does not count
    assert loss.item() == pytest.approx(0.32 + 1.805, rel=1e-6)
    loss.backward()
    assert values.grad.tolist() == pytest.approx([0.0, 0.0, -1.9])

    totals = Totals("critic")
    totals.add_sums(loss.detach() / 2, sums)
    totals.add_step(lr=0.1, grad_norm=1.0, tokens=2)
    metrics = value_metrics(totals.metrics(lambda values: values))
    assert metrics["critic/value_clip_fraction"] == 0.5
    assert metrics["critic/value_mean"] == pytest.approx(0.8)
    assert metrics["critic/return_mean"] == pytest.approx(2.0)
    # errors 0.5 and 1.9 (variance 0.49), returns 1 and 3 (variance 1)
    assert metrics["critic/explained_variance"] == pytest.approx(0.51, rel=1e-5)
    assert metrics["critic/loss"] == pytest.approx(2.125 / 2, rel=1e-6)
    assert not any("squared" in name for name in metrics)


def test_without_old_values_nothing_is_clipped():
    returns = Ragged.of([[1.0, 9.0], [3.0]], np.float32)
    batch = TrainBatch(tokens=BATCH.tokens, response_mask=BATCH.response_mask, returns=returns)
    loss, sums = weighted_value_loss(
        batch, torch.tensor([0.5, 5.0, 1.1]), settings=make_critic_settings(Path("unused"))
    )
    assert loss.item() == pytest.approx(0.125 + 1.805, rel=1e-6)
    assert sums["value_clip_fraction"].item() == 0


def test_first_loss_is_minus_the_advantages():
    logprobs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    loss, sums = weighted_loss(BATCH, logprobs, None, settings=settings())
    assert loss.item() == pytest.approx(
        -2.0 + 1.0
    )  # ratio 1; the token that does not count adds nothing
    loss.backward()
    assert logprobs.grad.tolist() == [-2.0, 0.0, 1.0]
    assert sums["ratio"].item() == 2.0


def test_old_logprobs_make_the_ratio():
    old = Ragged.of([[-1.0 - math.log(1.1), 0.0], [-3.0]], np.float32)
    batch = TrainBatch(
        tokens=BATCH.tokens,
        response_mask=BATCH.response_mask,
        advantages=BATCH.advantages,
        old_logprobs=old,
    )
    loss, _ = weighted_loss(batch, torch.tensor([-1.0, -2.0, -3.0]), None, settings=settings())
    assert loss.item() == pytest.approx(-1.1 * 2.0 + 1.0, rel=1e-6)


def test_totals_are_means_over_tokens_and_steps():
    totals = Totals()
    totals.add_sums(torch.tensor(0.5), {"kl": torch.tensor(3.0)})
    totals.add_sums(torch.tensor(0.25), {"kl": torch.tensor(1.0)})
    totals.add_step(lr=0.1, grad_norm=4.0, tokens=10)
    totals.add_step(lr=0.2, grad_norm=None, tokens=10)
    # as if another process had the same
    assert totals.metrics(lambda sums: {name: 2 * value for name, value in sums.items()}) == {
        "policy/kl": 8 / 20, "policy/loss": 1.5 / 2, "policy/grad_norm": 4.0, "policy/lr": 0.2, "policy/tokens": 20.0,
        "policy/skipped_updates": 1.0,
    }  # fmt: skip


def test_without_old_logprobs_the_update_measures_how_far_the_sampler_is_off():
    rollout = Ragged.of([[-1.5, -9.0], [-2.75]], np.float32)
    batch = TrainBatch(
        tokens=BATCH.tokens,
        response_mask=BATCH.response_mask,
        advantages=BATCH.advantages,
        rollout_logprobs=rollout,
    )
    logprobs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    _, sums = weighted_loss(batch, logprobs, None, settings=settings())
    # |-1 + 1.5| + |-3 + 2.75|; the middle token does not count
    assert sums["rollout_logprob_diff"].item() == pytest.approx(0.75)
    assert not sums["rollout_logprob_diff"].requires_grad
    assert (
        "rollout_logprob_diff" not in weighted_loss(BATCH, logprobs, None, settings=settings())[1]
    )
