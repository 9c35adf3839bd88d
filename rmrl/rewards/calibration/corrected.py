"""The share of good responses behind a judge's verdicts, corrected for the judge's mistakes.

With the share p of responses that the judge accepts, its sensitivity a = P(accepts | good) and its
specificity b = P(rejects | bad), p = theta a + (1 - theta) (1 - b), so that

    theta = (p + b - 1) / (a + b - 1)            Rogan and Gladen 1978, Am. J. Epidemiol. 107, 71

clipped to 0 .. 1. The interval takes all three as estimated from independent binomial samples (Lang
and Reiczigel 2014, Prev. Vet. Med. 113, 13, with their adjustments of the counts). Where the
adjusted interval does not reach the estimate, it is widened up to it. For judges of language models
see Lee et al. 2025, arXiv:2511.21140.

Responses that are good or bad together, such as several to one prompt, count as the fewer
independent ones that tell as much (`clusters`).

The labelled and the judged responses must be alike: a judge that errs more often on the judged ones
is corrected too little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from rmrl.rewards.calibration.clusters import independent_count
from rmrl.rewards.transforms.probability_map import ProbabilityMap, Verdicts

_ADDED = 2.0
"""Observations added to the samples of sensitivity and specificity, half of them accepted."""
_LEAST_INFORMEDNESS = 1e-9
"""a + b - 1 up to which it is 0 but for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """An estimated share of good responses with its interval, low <= value <= high. All None where
    the judge is no better than chance, as counted or after adjusting the counts."""

    value: float | None
    low: float | None
    high: float | None
    accepted: float
    """Share that the judge accepts, as it is."""
    count: int
    """Judged responses."""


def corrected_share(
    accepted: float,
    count: int,
    verdicts: Verdicts,
    *,
    independent: float | None = None,
    confidence: float = 0.95,
) -> Corrected:
    """Return the share of good responses among `count` judged ones where the judge accepts
    `accepted`. `verdicts`: those on labelled responses; needs some of both labels and count >= 1.
    `independent`: independent responses that the judged ones tell as much as. None: all are.

    Example:
        >>> verdicts = Verdicts(good=100, good_accepted=90, bad=100, bad_accepted=20)
        >>> round(corrected_share(550, 1000, verdicts).value, 3)
        0.5
    """
    share = accepted / count
    sensitivity = verdicts.good_accepted / verdicts.good
    specificity = 1 - verdicts.bad_accepted / verdicts.bad
    n_good = verdicts.good_independent or verdicts.good
    a = (sensitivity * n_good + _ADDED / 2) / (n_good + _ADDED)
    n_bad = verdicts.bad_independent or verdicts.bad
    b = (specificity * n_bad + _ADDED / 2) / (n_bad + _ADDED)
    informedness = a + b - 1
    # Few rows of one label can turn the sign of one of the two.
    if min(sensitivity + specificity - 1, informedness) <= _LEAST_INFORMEDNESS:
        return Corrected(value=None, low=None, high=None, accepted=share, count=count)
    value = _clipped((share + specificity - 1) / (sensitivity + specificity - 1))

    z = NormalDist().inv_cdf((1 + confidence) / 2)
    n = independent or count
    p = (share * n + z**2 / 2) / (n + z**2)
    theta = (p + b - 1) / informedness
    of_good = a * (1 - a) / (n_good + _ADDED)
    of_bad = b * (1 - b) / (n_bad + _ADDED)
    variance = p * (1 - p) / (n + z**2) + theta**2 * of_good + (1 - theta) ** 2 * of_bad
    middle = theta + 2 * z**2 * (theta * of_good - (1 - theta) * of_bad)
    half = z * math.sqrt(variance) / informedness
    return Corrected(
        value=value,
        low=min(value, _clipped(middle - half)),
        high=max(value, _clipped(middle + half)),
        accepted=share,
        count=count,
    )


def corrected_scores(
    fitted: ProbabilityMap,
    scores_N: np.ndarray,
    prompts_N: np.ndarray,
    *,
    confidence: float = 0.95,
) -> Corrected:
    """Return the share of good responses behind the verdicts of a map on `scores_N`, without NaN,
    of responses to the prompts numbered `prompts_N`."""
    accepted_N = fitted.accepted(scores_N)
    return corrected_share(
        float(accepted_N.sum()),
        len(scores_N),
        fitted.verdicts,
        independent=independent_count(accepted_N, prompts_N),
        confidence=confidence,
    )


def _clipped(value: float) -> float:
    return min(1.0, max(0.0, value))
