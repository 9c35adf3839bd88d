"""One step's responses and rewards on their way from sampling to training, and how rounds of
sampling become one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rmrl.algorithms.filters import informative_groups
from rmrl.errors import ConfigError
from rmrl.trainer.step_rewards import rewards_with_steps
from rmrl.types import Metrics, RewardBatch, Rollouts, Scores

Round = tuple[Rollouts, RewardBatch]
BEFORE_TRANSFORMS = ("score", "acc")
"""Values of algorithm.filter_groups.metric that look at scores before their transforms."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What one step trains on, and where the run stood when it was sampled."""

    step: int
    """The update it is for, counted from 0."""
    rollouts: Rollouts
    rewards: RewardBatch
    chosen_B: np.ndarray
    """bool: the response may train (dynamic sampling leaves out groups without contrast)."""
    baselines_B: np.ndarray | None = None
    """Reward of the greedy response to the row's prompt (NaN: it has none), where the estimator
    asks for it."""
    after: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """States of the loader and the rewards once this batch is trained: what a checkpoint of that
    moment keeps."""
    metrics: Metrics = dataclasses.field(default_factory=dict[str, float])


def concatenate(rounds: Sequence[Round]) -> Round:
    """Rounds of one step as one batch, in their order. Metrics are means over responses."""
    if len(rounds) == 1:
        return rounds[0]
    rollouts = [r for r, _ in rounds]
    batches = [b for _, b in rounds]
    rows = np.asarray([len(r.responses) for r in rollouts], dtype=np.float64)
    columns = [b.columns_BC for b in batches if b.columns_BC is not None]
    joined = RewardBatch(
        scores=_joined_scores([b.scores for b in batches]),
        weights_C=batches[-1].weights_C,
        rewards_B=np.concatenate([b.rewards_B for b in batches]),
        keep_B=np.concatenate([b.keep_B for b in batches]),
        steps=_joined_steps(batches, rollouts),
        columns_BC=np.concatenate(columns) if len(columns) == len(batches) else None,
        metrics=_mean_metrics([b.metrics for b in batches], rows),
    )
    responses = tuple(response for r in rollouts for response in r.responses)
    return Rollouts(responses=responses, group_size=rollouts[0].group_size), joined


def contrast(rollouts: Rollouts, rewards: RewardBatch, metric: str | None) -> np.ndarray:
    """bool [B]: the response's group differs in `metric`.

    A component's name; null or "reward": the whole reward; "score": the weighted sum of the scores
    before their transforms; "acc": what a reward returned as `acc` beside its score, else the same
    as "score".

    The whole reward is the combined one plus the scores of the response's steps. A response that
    cannot train (no reward, no token, no verdict of the component) is in no statistic and is never
    chosen. Raises ConfigError for a component that is not there.
    """
    values_B = _values(rewards, metric)
    has_tokens_B = np.asarray(
        [len(response.token_ids) > 0 for response in rollouts.responses], dtype=bool
    )
    has_B = np.isfinite(values_B) & rewards.keep_B & has_tokens_B
    chosen_B = np.zeros(len(values_B), dtype=bool)
    values = torch.from_numpy(values_B[has_B])
    groups = torch.from_numpy(rollouts.group_ids_B[has_B])
    chosen_B[has_B] = informative_groups(values, groups).numpy()
    return chosen_B


def _values(rewards: RewardBatch, metric: str | None) -> np.ndarray:
    if metric in (None, "reward"):
        return rewards_with_steps(rewards.rewards_B, rewards.steps)
    if metric in BEFORE_TRANSFORMS and metric not in rewards.scores.names:
        return _before_transforms(rewards, metric)
    if metric not in rewards.scores.names:
        raise ConfigError(
            f"algorithm.filter_groups.metric={metric}: no reward of that name; known: reward,"
            f" {', '.join(rewards.scores.names)}"
        )
    return rewards.scores.values_BC[:, rewards.scores.names.index(metric)]


def _before_transforms(rewards: RewardBatch, metric: str) -> np.ndarray:
    """[B] what a reward returned beside its score under the name of the metric; else the weighted
    sum of the scores."""
    values_B = (np.nan_to_num(rewards.scores.values_BC) * np.nan_to_num(rewards.weights_C)).sum(
        axis=1
    )
    if metric == "acc":
        for column in rewards.scores.results:
            for row, result in enumerate(column):
                if isinstance(result.extra.get(metric), int | float):
                    values_B[row] = float(result.extra[metric])
    return values_B


def _joined_scores(parts: Sequence[Scores]) -> Scores:
    columns = zip(*(part.results for part in parts), strict=True)
    return Scores(
        names=parts[0].names,
        results=tuple(tuple(r for column in rounds for r in column) for rounds in columns),
    )


def _joined_steps(batches: Sequence[RewardBatch], rollouts: Sequence[Rollouts]) -> tuple[Any, ...]:
    if not any(b.steps for b in batches):
        return ()
    return tuple(
        row
        for b, r in zip(batches, rollouts, strict=True)
        for row in b.steps or ((),) * len(r.responses)
    )


def _mean_metrics(parts: Sequence[Metrics], rows: np.ndarray) -> Metrics:
    keys = dict.fromkeys(key for part in parts for key in part)
    weights = {
        key: [float(n) if key in part else 0.0 for part, n in zip(parts, rows, strict=True)]
        for key in keys
    }
    return {
        key: (
            sum(part.get(key, 0.0) * w for part, w in zip(parts, weights[key], strict=True))
            / max(sum(weights[key]), 1.0)
        )
        for key in keys
    }
