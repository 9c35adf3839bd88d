"""Validation: the same rewards on held-out prompts, and what several responses to one prompt would
reach.

    val/reward, val/<component>               means over the verdicts there are
    val/<...>/missing                         share of responses without a verdict, where there are
      any
    val/length                                tokens per response
With n = rollout.val_kwargs.n responses per prompt, n >= 2, below each of val/reward and
val/<component>:
    mean@<n>, std@<n>                         of a prompt's responses, averaged over prompts
    best@<k>/{mean,std,se}, worst@<k>/...     for k = 2, 4, 8, ... and n: see rmrl/telemetry/at_k.py
    maj@<k>/{mean,se}                         where a component returns the response's answer: an
      extra column `pred` or `answer`
    best@<k>/left_out                         share of prompts with fewer than k verdicts, where
      there are any: worst, maj lack them, too
and all of it once more as val/<data_source>/... where there are several sources. `std` is within a
prompt, `se` the standard error of the mean over prompts. A response without a verdict is in no
statistic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmrl.config.schema import Config
from rmrl.telemetry import at_k
from rmrl.types import Metrics, RewardBatch, Rollouts, Sampling, ScoreResult

ANSWER_COLUMNS = ("pred", "answer")
"""Extra columns of a reward function that hold the response's extracted answer; the first that is
there counts."""
REWARD = "reward"


@dataclass(slots=True)
class _Group:
    """One prompt's responses under one component; NaN = no verdict."""

    source: str
    values: list[float] = field(default_factory=list)
    answers: list[str] | None = None


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
    """Everything a validation says, as finite numbers; see the module's text for the names."""
    lengths = [
        len(response.token_ids) for rollouts, _ in batches for response in rollouts.responses
    ]
    if lengths:
        out: Metrics = {"val/length": float(np.mean(lengths))}
    else:
        out = {}
    columns = _columns(batches)
    sources = sorted({group.source for groups in columns.values() for group in groups})
    for source in [None, *(sources if len(sources) > 1 else [])]:
        for name, groups in columns.items():
            chosen = [group for group in groups if source in (None, group.source)]
            if source != "" and chosen:  # rows that name no source count in the whole only
                out |= _of_one(f"val/{name}" if source is None else f"val/{source}/{name}", chosen)
    return out


def _columns(batches: Sequence[tuple[Rollouts, RewardBatch]]) -> dict[str, list[_Group]]:
    """Name ("reward" or a component's) -> prompts in order."""
    columns: dict[str, list[_Group]] = defaultdict(list)
    for rollouts, rewards in batches:
        size = rollouts.group_size
        values_BC = rewards.scores.values_BC
        answers_by_name = _answers(rewards)
        for start in range(0, len(rollouts.responses), size):
            rows = slice(start, start + size)
            source = rollouts.responses[start].prompt.data_source
            named = {REWARD: rewards.rewards_B[rows]}
            named |= {name: values_BC[rows, c] for c, name in enumerate(rewards.scores.names)}
            for name, values in named.items():
                answers = answers_by_name.get(name)
                columns[name].append(
                    _Group(
                        source,
                        [float(v) for v in values],
                        None if answers is None else answers[rows],
                    )
                )
    return columns


def _answers(rewards: RewardBatch) -> dict[str, list[str]]:
    """Answers [B] by component, of those that return them; the combined reward takes the first
    one's."""
    found = {
        name: _answer_column(column)
        for name, column in zip(rewards.scores.names, rewards.scores.results, strict=True)
    }
    given = {name: answers for name, answers in found.items() if answers is not None}
    if given:
        return given | {REWARD: next(iter(given.values()))}
    return {}


def _answer_column(results: Iterable[ScoreResult]) -> list[str] | None:
    """A response whose answer is missing votes for "no answer", an answer like any other; None: no
    response has the column."""
    rows = [
        next((row.extra[key] for key in ANSWER_COLUMNS if key in row.extra), ...) for row in results
    ]
    if all(answer is ... for answer in rows):
        return None
    return ["" if answer is ... or answer is None else str(answer).strip() for answer in rows]


def _of_one(key: str, groups: Sequence[_Group]) -> Metrics:
    values = np.asarray([value for group in groups for value in group.values])
    there = ~np.isnan(values)
    if there.any():
        out: Metrics = {key: float(values[there].mean())}
    else:
        out = {}
    if not there.all():
        out[f"{key}/missing"] = float((~there).mean())
    n = max(len(group.values) for group in groups)
    if n > 1:
        return out | dict(_at_k(key, groups, n))
    return out


def _at_k(key: str, groups: Sequence[_Group], n: int) -> Iterator[tuple[str, float]]:
    """Metrics over the n responses of each prompt."""
    verdicts = [np.asarray(group.values)[~np.isnan(group.values)] for group in groups]
    several = [values for values in verdicts if len(values) > 1]
    if any(len(values) for values in verdicts):
        yield (
            f"{key}/mean@{n}",
            float(np.mean([values.mean() for values in verdicts if len(values)])),
        )
    if several:
        yield f"{key}/std@{n}", float(np.mean([values.std() for values in several]))
    for k in at_k.ks(n):
        enough = [values for values in verdicts if len(values) >= k]
        if len(enough) < len(groups):
            yield f"{key}/best@{k}/left_out", 1 - len(enough) / len(groups)
        if not enough:
            continue
        for what, of in (("best", at_k.best_at_k), ("worst", at_k.worst_at_k)):
            means, stds = zip(*(of(values, k) for values in enough), strict=True)
            mean, error = at_k.mean_over_prompts(means)
            yield from (
                (f"{key}/{what}@{k}/mean", mean),
                (f"{key}/{what}@{k}/std", float(np.mean(stds))),
                (f"{key}/{what}@{k}/se", error),
            )
        voted = [vote for group in groups if (vote := _vote(group, k)) is not None]
        if voted:
            mean, error = at_k.mean_over_prompts(voted)
            yield from ((f"{key}/maj@{k}/mean", mean), (f"{key}/maj@{k}/se", error))


def _vote(group: _Group, k: int) -> float | None:
    """maj@k of one prompt; None where its component gives no answers, or has fewer than k
    verdicts."""
    if group.answers is None:
        return None
    rows = [
        (answer, value)
        for answer, value in zip(group.answers, group.values, strict=True)
        if not np.isnan(value)
    ]
    if len(rows) >= k:
        return at_k.majority_at_k(
            [answer for answer, _ in rows], np.asarray([value for _, value in rows]), k
        )
    return None
