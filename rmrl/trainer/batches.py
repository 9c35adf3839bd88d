"""Training batches from scored rollouts: pure functions, on the controller."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from rmrl.algorithms import ADVANTAGES, pf_ppo, rollout_correction
from rmrl.algorithms.kl import KLController
from rmrl.algorithms.rewards import kl_token_rewards
from rmrl.config.schema import AlgorithmConfig, RolloutCorrectionConfig
from rmrl.rewards.session.items import ResponseRow
from rmrl.trainer.scored_rollouts import ScoredRollouts
from rmrl.trainer.step_rewards import rewards_with_steps, step_token_rewards
from rmrl.trainer.teachers import teacher_token_rewards
from rmrl.types import (
    AdvantageInputs,
    Metrics,
    Ragged,
    Response,
    Step,
    TeacherTokens,
    TrainBatch,
)


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
    branches_B: np.ndarray
    """How many rows of `train` each response has, one per branch. int64."""
    steps: tuple[tuple[Step, ...], ...] = ()
    """Weighted scores for parts of the responses, () where no reward gives any."""
    teachers: tuple[tuple[TeacherTokens, ...], ...] = ()
    """Teachers of the responses, () without teachers."""
    baselines_B: np.ndarray | None = None
    """Reward of the greedy response to the row's prompt, NaN where it has none."""

    @property
    def train_groups(self) -> np.ndarray:
        """Each row's group in `train`."""
        return np.repeat(self.group_ids_B, self.branches_B)

    @property
    def whole(self) -> TrainBatch:
        """Return `train` with each response's branches joined into one row."""
        return self.train.joined(self.branches_B)

    def by_branch(self, stream_BT: torch.Tensor) -> Ragged:
        """Cut a padded stream of `whole` into the rows that `train` has."""
        lengths = self.train.response_mask.lengths
        whole = Ragged.from_padded(stream_BT.float().numpy(), self.whole.response_mask.lengths)
        return Ragged(whole.values, lengths)

    def select(self, index: np.ndarray) -> ScoredBatch:
        """Return the rows at `index`, in that order. A row may come several times."""
        ends_B = np.cumsum(self.branches_B)
        rows = [np.arange(ends_B[i] - self.branches_B[i], ends_B[i]) for i in index]
        steps: tuple[tuple[Step, ...], ...] = ()
        if self.steps:
            steps = tuple(self.steps[int(i)] for i in index)
        teachers: tuple[tuple[TeacherTokens, ...], ...] = ()
        if self.teachers:
            teachers = tuple(self.teachers[int(i)] for i in index)
        return dataclasses.replace(
            self,
            responses=tuple(self.responses[int(i)] for i in index),
            rewards_B=self.rewards_B[index],
            scores_BC=self.scores_BC[index],
            group_ids_B=self.group_ids_B[index],
            rows=self.rows[index],
            train=self.train.select(np.concatenate([np.zeros(0, np.int64), *rows])),
            branches_B=self.branches_B[index],
            steps=steps,
            teachers=teachers,
            baselines_B=None if self.baselines_B is None else self.baselines_B[index],
        )


def response_row(response: Response, *, group: int, step: int | None = None) -> ResponseRow:
    """Convert a response to the input of the reward layer. `step`: None where it trains nothing."""
    return ResponseRow(
        prompt=response.prompt,
        text=response.text,
        finish_reason=response.finish_reason,
        tokens=response.sampled,
        group=group,
        token_ids=response.token_ids,
        step=step,
    )


def keep_informative(scored: ScoredRollouts) -> ScoredBatch:
    """Drop rows without a reward, which are in no statistic and in no loss, and those that dynamic
    sampling left out."""
    rollouts = scored.rollouts
    rewards = scored.rewards
    has_tokens = np.asarray([response.sampled > 0 for response in rollouts.responses])
    rows = np.flatnonzero(rewards.keep_B & has_tokens & scored.chosen_B)
    responses = tuple(rollouts.responses[int(i)] for i in rows)
    columns_BC = rewards.scores.values_BC if rewards.columns_BC is None else rewards.columns_BC
    steps: tuple[tuple[Step, ...], ...] = ()
    if rewards.steps:
        steps = tuple(rewards.steps[int(i)] for i in rows)
    teachers: tuple[tuple[TeacherTokens, ...], ...] = ()
    if rewards.teachers:
        teachers = tuple(rewards.teachers[int(i)] for i in rows)
    return ScoredBatch(
        responses=responses,
        rewards_B=rewards.rewards_B[rows],
        scores_BC=columns_BC[rows],
        weights_C=rewards.weights_C,
        group_ids_B=rollouts.group_ids_B[rows],
        rows=rows,
        train=train_batch(responses),
        branches_B=np.asarray([len(each.branches) or 1 for each in responses], dtype=np.int64),
        steps=steps,
        teachers=teachers,
        baselines_B=None if scored.baselines_B is None else scored.baselines_B[rows],
    )


def train_batch(responses: tuple[Response, ...]) -> TrainBatch:
    """Return the responses' tokens, masks and rollout logprobs, a row for each branch."""
    prompts: dict[int, np.ndarray] = {}
    contexts: list[np.ndarray] = []
    lengths: list[int] = []
    for response in responses:
        for branch in response.branches:
            contexts.append(np.asarray(branch.prompt_ids, dtype=np.int64))
            lengths.append(branch.length)
        if response.branches:
            continue
        # A group shares its prompt, whose tokens are numbers of Python.
        prompt = prompts.get(id(response.prompt))
        if prompt is None:
            prompt = np.asarray(response.prompt.token_ids, dtype=np.int64)
            prompts[id(response.prompt)] = prompt
        contexts.append(prompt)
        lengths.append(len(response.token_ids))
    own = Ragged.of([response.token_ids for response in responses], np.int64)
    lengths_B = np.asarray(lengths, dtype=np.int64)
    assert lengths_B.sum() == len(own.values), "branches cover all tokens of a response"
    parts: list[np.ndarray] = []
    for context, tokens in zip(contexts, Ragged(own.values, lengths_B).rows(), strict=True):
        parts += [context, tokens]
    both = Ragged.of(parts, np.int64)
    mask = np.ones(len(own.values), np.float32)
    start = 0
    for response in responses:
        end = start + len(response.token_ids)
        if response.mask is not None:
            mask[start:end] = response.mask
        start = end
    logprobs = [response.logprobs for response in responses if response.logprobs is not None]
    rollout_logprobs = None
    if len(logprobs) == len(responses):
        rollout_logprobs = Ragged(Ragged.of(logprobs, np.float32).values, lengths_B)
    return TrainBatch(
        tokens=Ragged(both.values, both.lengths.reshape(-1, 2).sum(axis=1)),
        response_mask=Ragged(mask, lengths_B),
        rollout_logprobs=rollout_logprobs,
    )


def add_advantages(
    batch: ScoredBatch,
    settings: AlgorithmConfig,
    controller: KLController,
    *,
    decode: Callable[[Sequence[int]], str],
) -> tuple[ScoredBatch, Metrics]:
    """Estimate advantages. With use_kl_in_reward the KL penalty is a token reward and moves the
    controller.

    Scores for parts of a response are token rewards where each part ends; `decode` turns the
    policy's tokens into the text in which these places are counted. Teachers' log-ratios are
    rewards of their tokens. They are taken to the old policy's log-probabilities. Energies have
    done their work here and leave the batch.
    """
    whole = batch.whole
    mask_BT = torch.from_numpy(whole.response_mask.padded(0))
    token_rewards_BT, metrics = _kl_penalty(whole, mask_BT, settings, controller)
    if any(batch.steps):
        steps = step_token_rewards(batch.steps, batch.responses, decode)
        steps_BT = torch.from_numpy(steps.padded(0))
        token_rewards_BT = steps_BT if token_rewards_BT is None else token_rewards_BT + steps_BT
    if any(batch.teachers):
        assert whole.old_logprobs is not None, "Run.add_logprobs adds them for teachers"
        taught, of_teachers = teacher_token_rewards(
            batch.teachers, whole.old_logprobs, whole.response_mask
        )
        taught_BT = torch.from_numpy(taught.padded(0))
        token_rewards_BT = taught_BT if token_rewards_BT is None else token_rewards_BT + taught_BT
        metrics |= of_teachers
    weights_BT = None
    correction = settings.rollout_correction
    if whole.energies is not None and correction.rollout_is is not None:
        # of all tokens: a rejection changes no advantage
        unrejected = dataclasses.replace(correction, rollout_rs=None)
        weights_BT, _, _ = _corrected(whole, mask_BT, unrejected)
    baselines_B = None
    if batch.baselines_B is not None:
        baselines_B = torch.from_numpy(batch.baselines_B.astype(np.float32))
    inputs = AdvantageInputs(
        rewards_B=torch.from_numpy(batch.rewards_B.astype(np.float32)),
        group_ids_B=torch.from_numpy(batch.group_ids_B.astype(np.int64)),
        response_mask_BT=mask_BT,
        token_rewards_BT=token_rewards_BT,
        values_BT=_padded(whole.values),
        scores_BC=torch.from_numpy(batch.scores_BC.astype(np.float32)),
        weights_C=torch.from_numpy(batch.weights_C.astype(np.float32)),
        baseline_rewards_B=baselines_B,
        energies_BT=_padded(whole.energies),
        rollout_weights_BT=weights_BT,
    )
    estimated = ADVANTAGES[settings.adv_estimator](inputs, settings=settings)
    returns = None
    if estimated.returns_BT is not None:
        returns = batch.by_branch(estimated.returns_BT)
    advantages = batch.by_branch(estimated.advantages_BT)
    train = dataclasses.replace(batch.train, advantages=advantages, returns=returns, energies=None)
    return dataclasses.replace(batch, train=train), metrics | estimated.metrics


def _padded(stream: Ragged | None) -> torch.Tensor | None:
    return None if stream is None else torch.from_numpy(stream.padded(0))


def _kl_penalty(
    train: TrainBatch, mask_BT: torch.Tensor, settings: AlgorithmConfig, controller: KLController
) -> tuple[torch.Tensor | None, Metrics]:
    if not settings.use_kl_in_reward:
        return None, {}
    assert train.old_logprobs is not None
    assert train.ref_logprobs is not None
    old_BT = torch.from_numpy(train.old_logprobs.padded(0))
    ref_BT = torch.from_numpy(train.ref_logprobs.padded(0))
    coefficient = controller.coefficient
    penalty_BT, mean_kl = kl_token_rewards(
        old_BT, ref_BT, mask_BT, kind=settings.kl_penalty, coefficient=coefficient
    )
    controller.update(float(mean_kl), num_responses=int((mask_BT > 0).any(dim=1).sum()))
    return penalty_BT, {
        "reward/kl_penalty": float(mean_kl) * coefficient,
        "reward/kl_coef": coefficient,
        "policy/ref_kl": float(mean_kl),
    }


def correct_rollout(batch: ScoredBatch, settings: AlgorithmConfig) -> tuple[ScoredBatch, Metrics]:
    """Importance weights for sampling probabilities that are not those of training.

    Rejected tokens leave the losses (`TrainBatch.kept_mask`), but neither the rewards nor any
    statistic of them.
    """
    correction = settings.rollout_correction
    if correction.rollout_is is None and correction.rollout_rs is None:
        return batch, {}
    whole = batch.whole
    mask_BT = torch.from_numpy(whole.response_mask.padded(0))
    weights_BT, kept_BT, metrics = _corrected(whole, mask_BT, correction)
    weights = None if weights_BT is None else batch.by_branch(weights_BT)
    kept_mask = None if correction.rollout_rs is None else batch.by_branch(kept_BT)
    corrected = dataclasses.replace(batch.train, rollout_weights=weights, kept_mask=kept_mask)
    return dataclasses.replace(batch, train=corrected), metrics


def _corrected(
    train: TrainBatch, mask_BT: torch.Tensor, correction: RolloutCorrectionConfig
) -> tuple[torch.Tensor | None, torch.Tensor, Metrics]:
    assert train.old_logprobs is not None
    assert train.rollout_logprobs is not None
    old_BT = torch.from_numpy(train.old_logprobs.padded(0))
    rollout_BT = torch.from_numpy(train.rollout_logprobs.padded(0))
    return rollout_correction.correct(old_BT, rollout_BT, mask_BT, correction)


def redraw(
    batch: ScoredBatch, settings: AlgorithmConfig, *, rng: np.random.Generator
) -> tuple[ScoredBatch, Metrics]:
    """PF-PPO: draw the rows that train anew by their rewards, scores of steps included, where it is
    configured."""
    if not settings.use_pf_ppo:
        return batch, {}
    totals_B = rewards_with_steps(batch.rewards_B, batch.steps)
    index = pf_ppo.draw(totals_B, settings.pf_ppo, rng, group_ids_B=batch.group_ids_B)
    return batch.select(index), {"pf_ppo/distinct": len(np.unique(index)) / max(len(index), 1)}


def mini_batches(
    train: TrainBatch, group_ids_B: np.ndarray, *, prompts: int, rng: np.random.Generator | None
) -> Iterator[TrainBatch]:
    """Yield mini-batches with `prompts` prompts each; groups stay whole. `group_ids_B` has a group
    for each row in `train`. `rng` shuffles the groups first."""
    groups = np.unique(group_ids_B)
    if rng is not None:
        groups = rng.permutation(groups)
    for start in range(0, len(groups), prompts):
        yield train.select(np.flatnonzero(np.isin(group_ids_B, groups[start : start + prompts])))


def logprob_difference(train: TrainBatch) -> Metrics:
    """Difference between the sampling engine's and the training engine's log-probabilities over
    sampled tokens."""
    rollout = train.rollout_logprobs
    old = train.old_logprobs
    if rollout is None or old is None or not len(old.values):
        return {}
    difference = np.abs(rollout.values - old.values)[train.response_mask.values > 0]
    return {
        "policy/rollout_logprob_diff": float(difference.mean()),
        "policy/rollout_logprob_diff_max": float(difference.max()),
    }


def advantage_per_row(batch: ScoredBatch, total: int) -> np.ndarray:
    """Return the mean advantage of each of `total` rollouts, NaN where a row was left out. Rejected
    tokens count as well."""
    means = np.full(total, np.nan)
    whole = batch.whole
    if whole.advantages is not None:
        streams = (whole.advantages.rows(), whole.response_mask.rows())
        for row, advantages, mask in zip(batch.rows, *streams, strict=True):
            if mask.any():
                means[row] = advantages[mask > 0].mean()
    return means
