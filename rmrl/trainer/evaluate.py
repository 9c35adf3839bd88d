"""Validation: the same rewards on held-out prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from rmrl.config.schema import Config
from rmrl.types import Metrics, RewardBatch, Rollouts, Sampling


def validation_sampling(config: Config) -> Sampling:
    """From rollout.val_kwargs; greedy unless do_sample is set."""
    val = config.actor_rollout_ref.rollout.val_kwargs
    return Sampling(
        max_tokens=config.data.max_response_length,
        temperature=val.temperature if val.do_sample else 0.0,
        top_p=val.top_p if val.do_sample else 1.0,
        top_k=val.top_k if val.do_sample else -1,
        n=val.n,
        seed=config.trainer.seed,
    )


def validation_metrics(batches: Sequence[tuple[Rollouts, RewardBatch]]) -> Metrics:
    """val/reward, val/<component> (means over the verdicts there are), val/<component>/missing, the same per data_source where
    there are several, val/length."""
    columns: dict[str, list[float]] = defaultdict(list)
    sources = {response.prompt.data_source for rollouts, _ in batches for response in rollouts.responses}
    for rollouts, rewards in batches:
        values_BC = rewards.scores.values_BC
        for b, response in enumerate(rollouts.responses):
            source = response.prompt.data_source
            columns["val/length"].append(len(response.token_ids))
            named = {"reward": rewards.rewards_B[b], **dict(zip(rewards.scores.names, values_BC[b], strict=True))}
            for name, value in named.items():
                columns[f"val/{name}"].append(value)
                if source and len(sources) > 1:
                    columns[f"val/{source}/{name}"].append(value)
    means = {key: float(np.nanmean(values)) for key, values in columns.items() if not np.isnan(values).all()}
    missing = {f"{key}/missing": float(np.isnan(values).mean()) for key, values in columns.items() if np.isnan(values).any()}
    return means | missing
