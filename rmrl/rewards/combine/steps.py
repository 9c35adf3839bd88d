"""Rewards whose verdicts go to the response's tokens instead of adding to its reward: process
rewards and teachers (`to_tokens`), and turns' scores (`per: {turn: each}`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from rmrl.config.schema.reward import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.reads.setting import EACH
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms import Chain
from rmrl.types import Scores, Step


def to_tokens(spec: RewardSpec) -> bool:
    """Return whether the spec sends its parts to their tokens."""
    return bool(getattr(spec.options, "to_tokens", False)) or spec.reads.per_turn == EACH


def rates_tokens(spec: RewardSpec) -> bool:
    """Return whether the spec is a teacher that sends what it says of each token there."""
    return to_tokens(spec) and REWARD_KINDS[spec.kind].rates_tokens


def step_problems(
    specs: Sequence[RewardSpec], transforms: Sequence[Chain], *, settings: RewardConfig
) -> list[str]:
    """Return problems with resolved specs whose parts go to their tokens. Specs with weight 0 at
    every step and on every row send none."""
    problems: list[str] = []
    for spec, chain in zip(specs, transforms, strict=True):
        scheduled = spec.name in settings.weight_schedules
        if spec.weight == 0 and spec.sources is None and not scheduled:
            continue
        if to_tokens(spec) and settings.combine != "weighted_sum":
            problems.append(needs_sum(spec.name, settings.combine))
        if rates_tokens(spec) and chain.names:
            problems.append(
                f"reward '{spec.name}' is a teacher with the transforms {', '.join(chain.names)}:"
                " what it says of each token is only clipped and weighted; use its entry clip and"
                " its weight, or to_tokens=false for one score a response"
            )
        elif to_tokens(spec) and not chain.per_value:
            names = ", ".join(chain.names)
            problems.append(
                f"reward '{spec.name}' sends scores to tokens (to_tokens, per: {{turn: each}}) with"
                f" the transforms {names}: the parts of a response can only be scaled, clipped, or"
                " passed through sigmoid or piecewise; leave the others out, or the entry"
            )
    return problems


def check_steps(
    specs: Sequence[RewardSpec], transforms: Sequence[Chain], *, settings: RewardConfig
) -> None:
    """Raise ConfigError with `step_problems`."""
    problems = step_problems(specs, transforms, settings=settings)
    if problems:
        raise ConfigError(problems)


def needs_sum(name: str, how: str) -> str:
    """Return the problem of a combiner other than a sum, which needs the scalar."""
    return (
        f"reward '{name}' sends scores to tokens (to_tokens, per: {{turn: each}}) with"
        f" reward.combine={how}: scores of a response's parts can only be added; use"
        " reward.combine=weighted_sum, or leave the entry out"
    )


def rows_with_steps(scores: Scores, specs: Sequence[RewardSpec]) -> np.ndarray:
    """bool [B, C]: this verdict goes to the tokens, and its scalar stays out of the reward."""
    rows_BC = np.zeros(scores.values_BC.shape, dtype=bool)
    for c, (spec, column) in enumerate(zip(specs, scores.results, strict=True)):
        if to_tokens(spec):
            for b, result in enumerate(column):
                rows_BC[b, c] = bool(result.steps) or result.token_logprobs is not None
    return rows_BC


def weighted_steps(
    scores: Scores,
    specs: Sequence[RewardSpec],
    transforms: Sequence[Chain],
    *,
    rows: Rows,
    weights_BC: np.ndarray,
    counted_BC: np.ndarray,
) -> tuple[tuple[Step, ...], ...]:
    """[B] parts with weight * transformed value, in order, where `counted_BC`; parts that end
    together are added up. () where no component sends its parts to their tokens with a weight."""
    weighted = list(compress(specs, (weights_BC != 0).any(axis=0).tolist()))
    if not any(to_tokens(spec) and not rates_tokens(spec) for spec in weighted):
        return ()
    merged: list[dict[tuple[int, int], float]] = [{} for _ in range(len(rows))]
    for c, (column, chain) in enumerate(zip(scores.results, transforms, strict=True)):
        numbers: list[int] = []
        steps: list[Step] = []
        for b in np.flatnonzero(counted_BC[:, c]).tolist():
            numbers += [b] * len(column[b].steps)
            steps += column[b].steps
        raw = np.asarray([step.value for step in steps], dtype=np.float64)
        present = np.ones(len(raw), dtype=bool)
        values = chain.apply(raw, rows.select(numbers), present, learn=False)
        for b, step, value in zip(numbers, steps, values, strict=True):
            place = (-1 if step.turn is None else step.turn, step.end)
            merged[b][place] = merged[b].get(place, 0.0) + float(weights_BC[b, c] * value)
    rows_of_steps: list[tuple[Step, ...]] = []
    for places in merged:
        steps = [
            Step(end, value, None if turn < 0 else turn)
            for (turn, end), value in sorted(places.items())
        ]
        rows_of_steps.append(tuple(steps))
    return tuple(rows_of_steps)
