"""One score of the verdicts on a response's criteria."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rmrl.rewards.kinds.rubric.criteria import Criterion, Verdict


def weighted_mean(verdicts: Sequence[Verdict]) -> float:
    """sum(w v) / sum(w over w > 0): the score of an example in HealthBench (`calculate_score` in
    healthbench_eval.py of openai/simple-evals; arXiv 2505.08775), there with v of 0 or 1.

    At most 1, below 0 where faults outweigh the rest; needs a positive weight.
    """
    weights = [verdict.criterion.weight for verdict in verdicts]
    return _weighted_sum(verdicts) / math.fsum(max(weight, 0.0) for weight in weights)


def signed_mean(verdicts: Sequence[Verdict]) -> float:
    """sum(w v) / sum(|w|), from -1 to 1: that of open-instruct (RubricVerifier in
    ground_truth_utils.py); needs a weight other than 0."""
    total = math.fsum(abs(verdict.criterion.weight) for verdict in verdicts)
    return _weighted_sum(verdicts) / total


def all_pass(verdicts: Sequence[Verdict]) -> float:
    """1 where every criterion passes but those that are optional, else 0."""
    for verdict in verdicts:
        if not verdict.passed and not verdict.criterion.optional:
            return 0.0
    return 1.0


COMBINERS: Mapping[str, Callable[[Sequence[Verdict]], float]] = {
    "weighted_mean": weighted_mean,
    "signed_mean": signed_mean,
    "all_pass": all_pass,
}


def counts_alone(criterion: Criterion, combine: str) -> bool:
    """Whether this criterion alone gives a score that says something: one of positive weight for
    weighted_mean, of any weight but 0 for signed_mean, and one that is not optional for
    all_pass."""
    if combine == "weighted_mean":
        return criterion.weight > 0
    if combine == "signed_mean":
        return criterion.weight != 0
    return combine != "all_pass" or not criterion.optional


def weights_problem(criteria: Sequence[Criterion], combine: str) -> str:
    """Why the weights of these criteria give no score, as the end of a sentence; "" where they
    do."""
    if combine == "weighted_mean" and not any(counts_alone(each, combine) for each in criteria):
        return "no criterion has a positive weight, by whose sum weighted_mean divides"
    if combine == "signed_mean" and not any(counts_alone(each, combine) for each in criteria):
        return "all weights are 0, and signed_mean divides by their sum"
    return ""


def _weighted_sum(verdicts: Sequence[Verdict]) -> float:
    return math.fsum(verdict.criterion.weight * verdict.value for verdict in verdicts)
