"""Teachers' words on the responses' tokens, weighted: it stays out of the reward, and training
makes token rewards of it, since only there the policy's own log-probabilities are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rmrl.rewards.combine.steps import rates_tokens
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Scores, TeacherTokens


def teachers_of(
    scores: Scores,
    specs: Sequence[RewardSpec],
    *,
    weights_BC: np.ndarray,
    counted_BC: np.ndarray,
) -> tuple[tuple[TeacherTokens, ...], ...]:
    """[B] teachers with their weight on the row, where `counted_BC`; () where no component is a
    teacher that counts."""
    rows: list[list[TeacherTokens]] = [[] for _ in range(len(counted_BC))]
    for c, (spec, column) in enumerate(zip(specs, scores.results, strict=True)):
        if not rates_tokens(spec):
            continue
        for b in np.flatnonzero(counted_BC[:, c]).tolist():
            logprobs = column[b].token_logprobs
            assert logprobs is not None, "counted_BC are verdicts with log-probabilities"
            rows[b].append(
                TeacherTokens(
                    name=spec.name,
                    weight=float(weights_BC[b, c]),
                    clip=spec.options.clip or math.inf,
                    logprobs=logprobs,
                )
            )
    return tuple(map(tuple, rows)) if any(rows) else ()
