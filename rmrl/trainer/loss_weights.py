"""Inputs of a mini-batch's loss beside advantages: masked truncated responses, the imitation of
successful ones, each prompt's tokens. Pure functions, on the controller."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from rmrl.algorithms import aggregate
from rmrl.config.schema import AlgorithmConfig, TrainedConfig
from rmrl.trainer.batches import ScoredBatch, mini_batches
from rmrl.trainer.step_rewards import rewards_with_steps
from rmrl.types import Metrics, Ragged, TrainBatch


def mask_truncated(batch: ScoredBatch, settings: AlgorithmConfig) -> tuple[ScoredBatch, Metrics]:
    """Take responses that ended at the length limit out of every loss, where it is configured. No
    advantage changes (DAPO's overlong filtering, arXiv:2503.14476, section 3.4)."""
    if not settings.mask_truncated_completions:
        return batch, {}
    cut_off = [response.finish_reason == "length" for response in batch.responses]
    truncated_B = np.asarray(cut_off, dtype=bool)
    mask = batch.train.loss_mask
    kept_N = mask.values * _per_token(~truncated_B, batch.whole.loss_mask.lengths)
    train = dataclasses.replace(batch.train, kept_mask=Ragged(kept_N, mask.lengths))
    share = float(truncated_B.mean()) if len(truncated_B) else 0.0
    return dataclasses.replace(batch, train=train), {"policy/truncated_masked": share}


def imitate_successes(batch: ScoredBatch, settings: AlgorithmConfig) -> tuple[ScoredBatch, Metrics]:
    """Mark the responses whose whole reward lies above the threshold with the coefficient of their
    negative log-likelihood, where it is configured."""
    if not settings.positive_nll_coef:
        return batch, {}
    rewards_B = rewards_with_steps(batch.rewards_B, batch.steps)
    success_B = rewards_B > settings.positive_nll_threshold
    weights_N = settings.positive_nll_coef * _per_token(
        success_B, batch.whole.response_mask.lengths
    )
    weights = Ragged(weights_N, batch.train.response_mask.lengths)
    train = dataclasses.replace(batch.train, nll_weights=weights)
    share = float(success_B.mean()) if len(success_B) else 0.0
    return dataclasses.replace(batch, train=train), {"policy/imitated": share}


def weighted_mini_batches(
    batch: ScoredBatch,
    settings: TrainedConfig,
    *,
    max_length: int,
    rng: np.random.Generator | None,
) -> list[TrainBatch]:
    """Cut the batch into mini-batches (`batches.mini_batches`) that carry what `loss_agg_mode`
    needs. `max_length` is the longest response allowed, in tokens."""
    train = batch.train
    mode = settings.loss_agg_mode
    units_B = None
    if mode == aggregate.PROMPT_MEAN:
        units_B = batch.train_groups
    elif (batch.branches_B > 1).any():
        units_B = np.repeat(np.arange(len(batch.branches_B)), batch.branches_B)
    if units_B is not None:
        # Groups stay whole in a mini-batch, so tokens can be counted before the cut.
        train = dataclasses.replace(train, unit_tokens=unit_tokens(train.loss_mask, units_B))
    parts = mini_batches(train, batch.train_groups, prompts=settings.ppo_mini_batch_size, rng=rng)
    return [averaged_over_successes(part, mode, max_length=max_length) for part in parts]


def unit_tokens(mask: Ragged, units_B: np.ndarray) -> Ragged:
    """Counted tokens of all rows with the row's number, at each token of the row."""
    counted_B = np.asarray([row.sum() for row in mask.rows()], dtype=np.float64)
    _, group_B = np.unique(units_B, return_inverse=True)
    total_G = np.bincount(group_B, weights=counted_B)
    return Ragged(_per_token(total_G[group_B], mask.lengths), mask.lengths)


def averaged_over_successes(train: TrainBatch, mode: str, *, max_length: int) -> TrainBatch:
    """Scale `nll_weights` such that aggregation over the whole mini-batch averages the likelihood
    over the successful responses alone."""
    if train.nll_weights is None:
        return train
    weights_BT = torch.from_numpy(train.nll_weights.padded(0))
    mask_BT = torch.from_numpy(train.loss_mask.padded(0))
    tokens_BT = None
    if train.unit_tokens is not None:
        tokens_BT = torch.from_numpy(train.unit_tokens.padded(0))
    divisors: list[float] = []
    for part_BT in (mask_BT, mask_BT * (weights_BT > 0)):
        total = aggregate.total_weight(
            part_BT, mode, max_length=max_length, unit_tokens_BT=tokens_BT
        )
        if not total > 0:
            return dataclasses.replace(train, nll_weights=None)
        divisors.append(aggregate.divisor(float(total), mode))
    scaled_N = train.nll_weights.values * np.float32(divisors[0] / divisors[1])
    return dataclasses.replace(train, nll_weights=Ragged(scaled_N, train.nll_weights.lengths))


def _per_token(values_B: np.ndarray, lengths_B: np.ndarray) -> np.ndarray:
    """A row's value at each of its tokens, float32."""
    return np.repeat(values_B.astype(np.float32), lengths_B)
