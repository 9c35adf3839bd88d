"""Validation: the same rewards on held-out prompts, and statistics of several responses to one
prompt.

    val/reward, val/<component>               means over the verdicts there are
    val/<...>/missing                         share of responses without a verdict, where there are
      any
    val/length                                tokens per response
    val/<component>/corrected                 share of good responses, corrected for the judge's
      mistakes, where the component is calibrated (rmrl.rewards.calibration); 95 % interval in
      corrected_low and corrected_high; of all sources together only
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from rmrl.config.schema import Config
from rmrl.rewards.calibration.corrected import corrected_scores
from rmrl.rewards.transforms.probability_map import ProbabilityMap
from rmrl.telemetry import at_k
from rmrl.types import Metrics, RewardBatch, Rollouts, Sampling, ScoreResult

ANSWER_COLUMNS = ("pred", "answer")
"""Extra columns of a reward function that hold the response's extracted answer. The first that is
there counts."""
REWARD = "reward"


@dataclass(slots=True)
class _Group:
    """One prompt's responses under one component; NaN = no verdict."""

    source: str
    values: list[float] = field(default_factory=list)
    answers: list[str] | None = None


def validation_sampling(config: Config) -> Sampling:
    """Return the sampling of rollout.val_kwargs; greedy unless do_sample is set."""
    val = config.actor_rollout_ref.rollout.val_kwargs
    chosen: dict[str, Any] = {"temperature": 0.0, "top_p": 1.0, "top_k": -1}
    if val.do_sample:
        chosen = {"temperature": val.temperature, "top_p": val.top_p, "top_k": val.top_k}
    return Sampling(
        max_tokens=config.data.max_response_length,
        n=val.n,
        seed=config.trainer.seed,
        **chosen,
    )


def validation_metrics(
    batches: Sequence[tuple[Rollouts, RewardBatch]],
    *,
    calibrations: Mapping[str, ProbabilityMap] | None = None,
) -> Metrics:
    """Return all metrics of a validation as finite numbers. See the module's text for the names.
    `calibrations`: component -> the map of its scores, for those that have one."""
    calibrations = calibrations or {}
    responses = chain.from_iterable(rollouts.responses for rollouts, _ in batches)
    lengths = [response.sampled for response in responses]
    out: Metrics = {}
    if lengths:
        out["val/length"] = float(np.mean(lengths))
    by_name = _columns(batches)
    by_source: dict[str, dict[str, list[_Group]]] = defaultdict(lambda: defaultdict(list))
    for name, groups in by_name.items():
        out |= _of_one(f"val/{name}", groups, calibrations.get(name))
        for group in groups:
            by_source[group.source][name].append(group)
    if len(by_source) > 1:
        for source in sorted(by_source):
            if not source:  # rows that name no source count in the whole only
                continue
            for name in by_name:
                if by_source[source][name]:
                    key = f"val/{source}/{name}"
                    # A map's sensitivity is that of all sources together, not of this one.
                    out |= _of_one(key, by_source[source][name])
    return out


def _columns(batches: Sequence[tuple[Rollouts, RewardBatch]]) -> dict[str, list[_Group]]:
    """Return name ("reward" or a component's) -> prompts in order."""
    columns: dict[str, list[_Group]] = defaultdict(list)
    for rollouts, rewards in batches:
        size = rollouts.group_size
        answers_by_name: dict[str, list[str]] = {}
        for name, results in zip(rewards.scores.names, rewards.scores.results, strict=True):
            answers = _answers(results)
            if answers is not None:
                answers_by_name[name] = answers
        if answers_by_name:
            # The combined reward takes the answers of the first component that has any.
            answers_by_name[REWARD] = next(iter(answers_by_name.values()))
        values_by_name = {REWARD: rewards.rewards_B}
        values_BC = rewards.scores.values_BC
        for c, name in enumerate(rewards.scores.names):
            values_by_name[name] = values_BC[:, c]
        for start in range(0, len(rollouts.responses), size):
            rows = slice(start, start + size)
            source = rollouts.responses[start].prompt.data_source
            for name, values_B in values_by_name.items():
                answers = answers_by_name.get(name)
                group = _Group(source, values_B[rows].astype(float).tolist())
                group.answers = None if answers is None else answers[rows]
                columns[name].append(group)
    return columns


def _answers(results: Iterable[ScoreResult]) -> list[str] | None:
    """Return the responses' answers, None where no response has the column. A response
    without an answer votes for "no answer", an answer like any other."""
    answers: list[str] = []
    has_column = False
    for result in results:
        answer = None
        for key in ANSWER_COLUMNS:
            if key in result.extra:
                has_column = True
                answer = result.extra[key]
                break
        answers.append("" if answer is None else str(answer).strip())
    return answers if has_column else None


def _of_one(
    key: str, groups: Sequence[_Group], calibration: ProbabilityMap | None = None
) -> Metrics:
    values = np.concatenate([np.asarray(group.values, dtype=np.float64) for group in groups])
    present = ~np.isnan(values)
    out: Metrics = {}
    if present.any():
        out[key] = float(values[present].mean())
        if calibration is not None:
            sizes = [len(group.values) for group in groups]
            prompts = np.repeat(np.arange(len(groups)), sizes)
            out |= _corrected(key, calibration, values[present], prompts[present])
    if not present.all():
        out[f"{key}/missing"] = float((~present).mean())
    n = max(len(group.values) for group in groups)
    if n > 1:
        out |= dict(_at_k(key, groups, n))
    return out


def _corrected(
    key: str, calibration: ProbabilityMap, scores_N: np.ndarray, prompts_N: np.ndarray
) -> Metrics:
    """Return the corrected share of good responses, {} where the judge is no better than
    chance."""
    estimate = corrected_scores(calibration, scores_N, prompts_N)
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return {}
    return {
        f"{key}/corrected": estimate.value,
        f"{key}/corrected_low": estimate.low,
        f"{key}/corrected_high": estimate.high,
    }


def _at_k(key: str, groups: Sequence[_Group], n: int) -> Iterator[tuple[str, float]]:
    """Metrics over the n responses of each prompt."""
    verdicts: list[np.ndarray] = []
    for group in groups:
        values = np.asarray(group.values)[~np.isnan(group.values)]
        if len(values):
            verdicts.append(values)
    several = [values for values in verdicts if len(values) > 1]
    if verdicts:
        yield f"{key}/mean@{n}", float(np.mean([values.mean() for values in verdicts]))
    if several:
        yield f"{key}/std@{n}", float(np.mean([values.std() for values in several]))
    for k in at_k.ks(n):
        enough = [values for values in verdicts if len(values) >= k]
        if len(enough) < len(groups):
            yield f"{key}/best@{k}/left_out", 1 - len(enough) / len(groups)
        if not enough:
            continue
        for what, statistic in (("best", at_k.best_at_k), ("worst", at_k.worst_at_k)):
            pairs = np.asarray([statistic(values, k) for values in enough])
            mean, error = at_k.mean_over_prompts(pairs[:, 0].tolist())
            yield f"{key}/{what}@{k}/mean", mean
            yield f"{key}/{what}@{k}/std", float(np.mean(pairs[:, 1].tolist()))
            yield f"{key}/{what}@{k}/se", error
        votes = [vote for vote in (_vote(group, k) for group in groups) if vote is not None]
        if votes:
            mean, error = at_k.mean_over_prompts(votes)
            yield f"{key}/maj@{k}/mean", mean
            yield f"{key}/maj@{k}/se", error


def _vote(group: _Group, k: int) -> float | None:
    """maj@k of one prompt, None where its component gives no answers, or has fewer than k
    verdicts."""
    if group.answers is None:
        return None
    answers: list[str] = []
    values: list[float] = []
    for answer, value in zip(group.answers, group.values, strict=True):
        if not np.isnan(value):
            answers.append(answer)
            values.append(value)
    if len(values) < k:
        return None
    return at_k.majority_at_k(answers, np.asarray(values), k)
