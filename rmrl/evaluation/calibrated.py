"""Check on labelled responses that a map has not seen whether its calibrated reward keeps its
promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from rmrl.api import ProbabilityMap, corrected_scores
from rmrl.evaluation.counts import Counting, Numbers
from rmrl.evaluation.formats import Judged
from rmrl.evaluation.items import Item
from rmrl.evaluation.measures.calibration import curve


def calibrated_numbers(
    items: Sequence[Item],
    judge: Judged,
    made: ProbabilityMap,
    counting: Counting,
    *,
    bins: int,
) -> Numbers | None:
    """Return {calibration: Brier, ECE and curve for P(good), good: share of good responses by
    people's labels, corrected: the same share estimated from the reward's verdicts alone}. None
    unless people's values are 0 and 1."""
    scores: list[float] = []
    good: list[float] = []
    numbers: dict[str, int] = {}
    prompts: list[int] = []
    for item, judgement in zip(items, judge.judgements, strict=True):
        prompt = numbers.setdefault(str(item.prompt), len(numbers))
        for score, value in zip(judgement.scores, item.values, strict=False):
            if score is not None:
                scores.append(score)
                good.append(value)
                prompts.append(prompt)
    if not set(good) or not set(good) <= {0.0, 1.0}:
        return None
    scores_N = np.asarray(scores)
    estimate = corrected_scores(made, scores_N, np.asarray(prompts), confidence=counting.confidence)
    return {
        "calibration": curve(made.curve.apply(scores_N).tolist(), good, bins=bins),
        "good": counting.share(good),
        "corrected": asdict(estimate),
    }
