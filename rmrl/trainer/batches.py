"""From scored rollouts to what trains: pure, on the controller."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from rmrl.algorithms import ADVANTAGES, pf_ppo, rollout_correction
from rmrl.algorithms.kl import KLController
from rmrl.algorithms.rewards import kl_token_rewards
from rmrl.config.schema import AlgorithmConfig
from rmrl.rewards.scoring.items import ResponseRow
from rmrl.trainer.sampled import Sampled
from rmrl.trainer.step_rewards import rewards_with_steps, step_token_rewards
from rmrl.types import AdvantageInputs, Metrics, Ragged, Response, Step, TrainBatch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoredBatch:
    """The rows that train: responses with a reward and at least one token."""

    responses: tuple[Response, ...]
    rewards_B: np.ndarray
    scores_BC: np.ndarray
    weights_C: np.ndarray
    group_ids_B: np.ndarray
    rows: np.ndarray
    """Positions of these rows among all rollouts, int64."""
    train: TrainBatch
    steps: tuple[tuple[Step, ...], ...] = ()
    """Weighted scores of parts of the responses; () where no reward gives any."""
    baselines_B: np.ndarray | None = None
    """Reward of the greedy response to the row's prompt; NaN where it has none."""

    def select(self, index: np.ndarray) -> ScoredBatch:
        """The rows at `index`, in that order; a row may come several times."""
        return dataclasses.replace(
            self,
            responses=tuple(self.responses[int(i)] for i in index),
            rewards_B=self.rewards_B[index],
            scores_BC=self.scores_BC[index],
            group_ids_B=self.group_ids_B[index],
            rows=self.rows[index],
            train=self.train.select(index),
            steps=tuple(self.steps[int(i)] for i in index) if self.steps else (),
            baselines_B=None if self.baselines_B is None else self.baselines_B[index],
        )


def response_row(response: Response, *, group: int) -> ResponseRow:
    """A response as the reward layer takes it."""
    return ResponseRow(
        prompt=response.prompt,
        text=response.text,
        finish_reason=response.finish_reason,
        tokens=len(response.token_ids),
        group=group,
        token_ids=response.token_ids,
    )


def keep_informative(sampled: Sampled) -> ScoredBatch:
    """Drop rows without a reward, which are in no statistic and in no loss, and those that dynamic
    sampling left out."""
    rollouts = sampled.rollouts
    rewards = sampled.rewards
    has_tokens = np.asarray([len(r.token_ids) > 0 for r in rollouts.responses], dtype=bool)
    rows = np.flatnonzero(rewards.keep_B & has_tokens & sampled.chosen_B)
    responses = tuple(rollouts.responses[int(i)] for i in rows)
    return ScoredBatch(
        responses=responses,
        rewards_B=rewards.rewards_B[rows],
        scores_BC=(rewards.scores.values_BC if rewards.columns_BC is None else rewards.columns_BC)[
            rows
        ],
        weights_C=rewards.weights_C,
        group_ids_B=rollouts.group_ids_B[rows],
        rows=rows,
        train=train_batch(responses),
        steps=tuple(rewards.steps[int(i)] for i in rows) if rewards.steps else (),
        baselines_B=None if sampled.baselines_B is None else sampled.baselines_B[rows],
    )


def train_batch(responses: tuple[Response, ...]) -> TrainBatch:
    """Tokens, mask and rollout logprobs of the responses."""
    with_logprobs = all(r.logprobs is not None for r in responses)
    return TrainBatch(
        tokens=Ragged.of([(*r.prompt.token_ids, *r.token_ids) for r in responses], np.int64),
        response_mask=Ragged.of([np.ones(len(r.token_ids)) for r in responses], np.float32),
        rollout_logprobs=(
            Ragged.of([r.logprobs or () for r in responses], np.float32) if with_logprobs else None
        ),
    )


def add_advantages(
    batch: ScoredBatch,
    settings: AlgorithmConfig,
    controller: KLController,
    *,
    decode: Callable[[Sequence[int]], str],
) -> tuple[ScoredBatch, Metrics]:
    """Estimate advantages; with use_kl_in_reward the KL penalty is a token reward and moves the
    controller.

    Scores of parts of a response are token rewards where each part ends; `decode` finds these
    places in the policy's tokens.
    """
    lengths = batch.train.response_mask.lengths
    mask_BT = torch.from_numpy(batch.train.response_mask.padded(0))
    penalty_BT, metrics = _kl_penalty(batch.train, mask_BT, settings, controller)
    inputs = AdvantageInputs(
        rewards_B=torch.from_numpy(batch.rewards_B.astype(np.float32)),
        group_ids_B=torch.from_numpy(batch.group_ids_B.astype(np.int64)),
        response_mask_BT=mask_BT,
        token_rewards_BT=_with_steps(penalty_BT, batch, decode),
        values_BT=(
            None if batch.train.values is None else torch.from_numpy(batch.train.values.padded(0))
        ),
        scores_BC=torch.from_numpy(batch.scores_BC.astype(np.float32)),
        weights_C=torch.from_numpy(batch.weights_C.astype(np.float32)),
        baseline_rewards_B=(
            None
            if batch.baselines_B is None
            else torch.from_numpy(batch.baselines_B.astype(np.float32))
        ),
    )
    estimated = ADVANTAGES[settings.adv_estimator](inputs, settings=settings)
    advantages = Ragged.from_padded(estimated.advantages_BT.float().numpy(), lengths)
    if estimated.returns_BT is None:
        returns = None
    else:
        returns = Ragged.from_padded(estimated.returns_BT.float().numpy(), lengths)
    train = dataclasses.replace(batch.train, advantages=advantages, returns=returns)
    return dataclasses.replace(batch, train=train), metrics | estimated.metrics


def _with_steps(
    penalty_BT: torch.Tensor | None, batch: ScoredBatch, decode: Callable[[Sequence[int]], str]
) -> torch.Tensor | None:
    if not any(batch.steps):
        return penalty_BT
    steps_BT = torch.from_numpy(step_token_rewards(batch.steps, batch.responses, decode).padded(0))
    if penalty_BT is None:
        return steps_BT
    return penalty_BT + steps_BT


def _kl_penalty(
    train: TrainBatch, mask_BT: torch.Tensor, settings: AlgorithmConfig, controller: KLController
) -> tuple[torch.Tensor | None, Metrics]:
    if not settings.use_kl_in_reward:
        return None, {}
    assert train.old_logprobs is not None
    assert train.ref_logprobs is not None
    old_BT, ref_BT = (
        torch.from_numpy(stream.padded(0)) for stream in (train.old_logprobs, train.ref_logprobs)
    )
    used = controller.coefficient
    penalty_BT, mean_kl = kl_token_rewards(
        old_BT, ref_BT, mask_BT, kind=settings.kl_penalty, coefficient=used
    )
    controller.update(float(mean_kl), num_responses=int((mask_BT > 0).any(dim=1).sum()))
    return penalty_BT, {
        "reward/kl_penalty": float(mean_kl) * used,
        "reward/kl_coef": used,
        "policy/ref_kl": float(mean_kl),
    }


def correct_rollout(batch: ScoredBatch, settings: AlgorithmConfig) -> tuple[ScoredBatch, Metrics]:
    """Importance weights for sampling probabilities that are not those of training.

    Rejected tokens leave the losses (`TrainBatch.kept_mask`), but neither the rewards nor any
    statistic of them.
    """
    wanted = settings.rollout_correction
    train = batch.train
    if wanted.rollout_is is None and wanted.rollout_rs is None:
        return batch, {}
    assert train.old_logprobs is not None
    assert train.rollout_logprobs is not None
    lengths = train.response_mask.lengths
    streams = (train.old_logprobs, train.rollout_logprobs, train.response_mask)
    old_BT, rollout_BT, mask_BT = (torch.from_numpy(stream.padded(0)) for stream in streams)
    weights_BT, kept_BT, metrics = rollout_correction.correct(old_BT, rollout_BT, mask_BT, wanted)
    weights = None if weights_BT is None else Ragged.from_padded(weights_BT.numpy(), lengths)
    kept = None if wanted.rollout_rs is None else Ragged.from_padded(kept_BT.numpy(), lengths)
    corrected = dataclasses.replace(train, rollout_weights=weights, kept_mask=kept)
    return dataclasses.replace(batch, train=corrected), metrics


def redraw(
    batch: ScoredBatch, settings: AlgorithmConfig, *, rng: np.random.Generator
) -> tuple[ScoredBatch, Metrics]:
    """PF-PPO: where configured, the rows that train are drawn anew by their rewards, scores of
    steps included."""
    if not settings.use_pf_ppo:
        return batch, {}
    totals_B = rewards_with_steps(batch.rewards_B, batch.steps)
    index = pf_ppo.draw(totals_B, settings.pf_ppo, rng, group_ids_B=batch.group_ids_B)
    return batch.select(index), {"pf_ppo/distinct": len(np.unique(index)) / max(len(index), 1)}


def mini_batches(
    train: TrainBatch, group_ids_B: np.ndarray, *, prompts: int, rng: np.random.Generator | None
) -> Iterator[TrainBatch]:
    """Cut into mini-batches of `prompts` prompts; the groups stay whole. `rng` shuffles the groups
    first."""
    groups = np.unique(group_ids_B)
    if rng is not None:
        groups = rng.permutation(groups)
    for start in range(0, len(groups), prompts):
        yield train.select(np.flatnonzero(np.isin(group_ids_B, groups[start : start + prompts])))


def logprob_difference(train: TrainBatch) -> Metrics:
    """How far the sampling engine's log-probabilities are from the training engine's, over response
    tokens."""
    if (
        train.rollout_logprobs is None
        or train.old_logprobs is None
        or not len(train.old_logprobs.values)
    ):
        return {}
    apart = np.abs(train.rollout_logprobs.values - train.old_logprobs.values)
    return {
        "policy/rollout_logprob_diff": float(apart.mean()),
        "policy/rollout_logprob_diff_max": float(apart.max()),
    }


def advantage_per_row(batch: ScoredBatch, total: int) -> np.ndarray:
    """Mean advantage of each of `total` rollouts; NaN where a row was left out. Rejected tokens
    have theirs too."""
    spread = np.full(total, np.nan)
    if batch.train.advantages is not None:
        spread[batch.rows] = [
            row.mean() if len(row) else np.nan for row in batch.train.advantages.rows()
        ]
    return spread
