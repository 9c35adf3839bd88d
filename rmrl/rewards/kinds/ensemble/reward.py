"""Kind `ensemble`: one score from several rewards: their mean, minimum, median, or a lower
confidence bound.

    lower_bound = mean - k * std      over the members' (transformed) scores of one response

The std is unbiased (divides by M - 1), as in `standardize` and the advantage estimators. There are
at least two members. Large k is worst-case, k = 0 the mean. The penalty on disagreement is that of
reward-model ensembles in arXiv:2310.02743, with the std in place of its variance (which divides by
M), so that k has no unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rmrl.config.schema.fields import choice, not_negative
from rmrl.rewards.kinds.kind import Kind
from rmrl.types import ScoreResult


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleOptions:
    """Further entries of reward.specs.<name>."""

    of: Sequence[str] = ()
    """Names of the members: rewards as in reward.models. Their transforms apply, their weights do
    not."""
    how: str = choice("mean", among=("mean", "min", "median", "lower_bound"))
    """How the members' scores are combined."""
    k: float = not_negative(1.0)
    """lower_bound: standard deviations below the mean."""


class Ensemble(Kind):
    """A reward without an engine: the scorer has the members' scores and calls
    `ensemble_results`."""

    Options = EnsembleOptions
    combines: ClassVar[bool] = True

    @classmethod
    def check_options(cls, options: EnsembleOptions, where: str) -> list[str]:
        """Problems of the entries, one sentence each."""
        problems: list[str] = []
        if len(options.of) < 2:
            problems.append(
                f"{where}.of={options.of}: name at least two rewards, e.g. of: [judge_a, judge_b]"
            )
        elif len(set(options.of)) < len(options.of):
            problems.append(
                f"{where}.of names one reward twice ({', '.join(options.of)}): each member has one"
                " vote; give each once"
            )
        if options.k != 1.0 and options.how != "lower_bound":
            problems.append(
                f"{where}.k belongs to how: lower_bound and has no effect on {options.how}: give"
                " that, or leave it out"
            )
        return problems


def ensemble_results(
    members: Sequence[Sequence[ScoreResult]],
    values: np.ndarray,
    options: EnsembleOptions,
    name: str,
) -> list[ScoreResult]:
    """One result per response from its members' results [M][B] and their transformed scores,
    `values` [M, B].

    Where a member has no verdict the ensemble has none either, with that member's status and a
    detail naming it: a mean over fewer judges is another reward. A failure goes before "skipped".
    The members' scores stand in `extra` under their names.
    """
    assert len(members) == len(options.of) == len(values), (
        f"ensemble '{name}': {len(members)} members for {len(options.of)} names"
    )
    combined_B = combined_scores(np.asarray(values, dtype=np.float64), options.how, options.k)
    results: list[ScoreResult] = []
    for b, row in enumerate(zip(*members, strict=True)):
        scores = dict(zip(options.of, values[:, b], strict=True))
        results.append(_result(row, float(combined_B[b]), scores, name))
    return results


def _result(
    row: Sequence[ScoreResult], combined: float, values: Mapping[str, float], name: str
) -> ScoreResult:
    """`row` and `values` are in the members' order."""
    extra: dict[str, float | None] = {
        member: None if np.isnan(value) else float(value) for member, value in values.items()
    }
    costs: dict[str, Any] = {"latency_s": 0.0, "tokens_in": 0, "tokens_out": 0, "cached": True}
    failed: list[tuple[str, ScoreResult]] = []
    skipped: list[tuple[str, ScoreResult]] = []
    for member, result in zip(values, row, strict=True):
        costs["latency_s"] = max(costs["latency_s"], result.latency_s)
        costs["tokens_in"] += result.tokens_in
        costs["tokens_out"] += result.tokens_out
        costs["cached"] &= result.cached
        if result.status == "skipped":
            skipped.append((member, result))
        elif result.value is None:
            failed.append((member, result))
    missing = failed or skipped
    if not missing:
        return ScoreResult(value=combined, extra=extra, **costs)
    member, first = missing[0]
    reason = "was skipped" if first.status == "skipped" else f"gave no verdict ({first.status})"
    if len(missing) > 1:
        reason += f" ({len(missing)} of {len(row)} members lack one)"
    if first.detail:
        reason += f": {first.detail}"
    detail = f"ensemble '{name}': its member '{member}' {reason}"
    # Budgets bound the failures of judges: one failed member is one.
    unasked = all(result.unasked for _, result in missing)
    return ScoreResult(
        value=None, status=first.status, detail=detail, extra=extra, unasked=unasked, **costs
    )


def combined_scores(values_MB: np.ndarray, how: str, k: float = 1.0) -> np.ndarray:
    """One score per response from the scores of M members: their mean, min, median or
    lower_bound."""
    if how == "min":
        return values_MB.min(axis=0)
    if how == "median":
        return np.median(values_MB, axis=0)
    means_B = values_MB.mean(axis=0)
    if how == "mean":
        return means_B
    assert how == "lower_bound", how
    return means_B - k * values_MB.std(axis=0, ddof=1)
