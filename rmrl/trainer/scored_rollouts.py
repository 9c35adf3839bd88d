"""One step's responses and rewards between sampling and training, and the concatenation of several
sampling rounds."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rmrl.algorithms.filters import informative_groups
from rmrl.errors import ConfigError
from rmrl.trainer.check_algorithm import BEFORE_TRANSFORMS
from rmrl.trainer.step_rewards import rewards_with_steps
from rmrl.types import (
    Metrics,
    Response,
    RewardBatch,
    Rollouts,
    Scores,
    Step,
    TeacherTokens,
)

Round = tuple[Rollouts, RewardBatch]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollouts:
    """Training data of one step, and the state of the run when it was sampled."""

    step: int
    """Number of the update that trains on it, counted from 0."""
    rollouts: Rollouts
    rewards: RewardBatch
    chosen_B: np.ndarray
    """bool: the response may train (dynamic sampling leaves out groups without contrast)."""
    baselines_B: np.ndarray | None = None
    """Reward of the greedy response to the row's prompt (NaN: it has none), where the estimator
    needs it."""
    after: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """States of the loader and the rewards once this batch is trained, for a checkpoint at that
    time."""
    metrics: Metrics = dataclasses.field(default_factory=dict[str, float])


def concatenate(rounds: Sequence[Round]) -> Round:
    """Join rounds of one step into one batch, in their order. Metrics are means over responses."""
    if len(rounds) == 1:
        return rounds[0]
    batches = [batch for _, batch in rounds]
    columns: list[np.ndarray] = []
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    responses: list[Response] = []
    steps: list[tuple[Step, ...]] = []
    teachers: list[tuple[TeacherTokens, ...]] = []
    for rollouts, batch in rounds:
        responses += rollouts.responses
        steps += batch.steps or ((),) * len(rollouts.responses)
        teachers += batch.teachers or ((),) * len(rollouts.responses)
        if batch.columns_BC is not None:
            columns.append(batch.columns_BC)
        # Each metric is the mean over the responses of the rounds that have it.
        weight = float(len(rollouts.responses))
        for key, value in batch.metrics.items():
            sums[key] = sums.get(key, 0.0) + value * weight
            weights[key] = weights.get(key, 0.0) + weight
    by_batch = [batch.scores.results for batch in batches]
    results = [tuple(itertools.chain.from_iterable(parts)) for parts in zip(*by_batch, strict=True)]
    joined = RewardBatch(
        scores=Scores(names=batches[0].scores.names, results=tuple(results)),
        weights_C=batches[-1].weights_C,
        rewards_B=np.concatenate([batch.rewards_B for batch in batches]),
        keep_B=np.concatenate([batch.keep_B for batch in batches]),
        steps=tuple(steps) if any(batch.steps for batch in batches) else (),
        teachers=tuple(teachers) if any(batch.teachers for batch in batches) else (),
        columns_BC=np.concatenate(columns) if len(columns) == len(batches) else None,
        metrics={key: total / max(weights[key], 1.0) for key, total in sums.items()},
    )
    group_size = rounds[0][0].group_size
    return Rollouts(responses=tuple(responses), group_size=group_size), joined


def contrast(rollouts: Rollouts, rewards: RewardBatch, metric: str | None) -> np.ndarray:
    """Return bool [B]: the response's group differs in `metric`.

    A component's name; null or "reward": the whole reward; "score": the weighted sum of the scores
    before their transforms, without teachers, whose verdicts are in no reward; "acc": the `acc`
    that a reward returned beside its score, else the same as "score".

    The whole reward is the combined one plus the scores of the response's steps. A response that
    cannot train (no reward, no token, no verdict of the component) is in no statistic and is never
    chosen. Raises ConfigError for an unknown component.
    """
    values_B = _values(rewards, metric)
    lengths = [response.sampled for response in rollouts.responses]
    has_B = np.isfinite(values_B) & rewards.keep_B & (np.asarray(lengths, dtype=np.int64) > 0)
    chosen_B = np.zeros(len(values_B), dtype=bool)
    values = torch.from_numpy(values_B[has_B])
    groups = torch.from_numpy(rollouts.group_ids_B[has_B])
    chosen_B[has_B] = informative_groups(values, groups).numpy()
    return chosen_B


def _values(rewards: RewardBatch, metric: str | None) -> np.ndarray:
    if metric in (None, "reward"):
        return rewards_with_steps(rewards.rewards_B, rewards.steps)
    if metric in rewards.scores.names:
        return rewards.scores.values_BC[:, rewards.scores.names.index(metric)]
    if metric not in BEFORE_TRANSFORMS:
        raise ConfigError(
            f"algorithm.filter_groups.metric={metric}: no reward of that name; known: reward,"
            f" {', '.join(rewards.scores.names)}"
        )
    # The weighted sum of the scores, or what a reward returned beside its score.
    scores_BC = np.nan_to_num(rewards.scores.values_BC)
    for row, teachers in enumerate(rewards.teachers):
        for teacher in teachers:
            scores_BC[row, rewards.scores.names.index(teacher.name)] = 0.0
    values_B = (scores_BC * np.nan_to_num(rewards.weights_C)).sum(axis=1)
    if metric == "acc":
        for column in rewards.scores.results:
            for row, result in enumerate(column):
                if isinstance(result.extra.get(metric), int | float):
                    values_B[row] = float(result.extra[metric])
    return values_B
