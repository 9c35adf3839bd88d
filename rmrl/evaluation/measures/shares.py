"""Shares with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.stats import binomtest, bootstrap

from rmrl.api import independent_count

_RESAMPLES = 2000
CELLS = 10**7
"""Resampled values that a bootstrap has in memory at a time."""


def clustered_share(
    values_N: np.ndarray, prompts_N: np.ndarray, *, confidence: float
) -> dict[str, Any]:
    """Return the mean over values in 0 .. 1 of responses to the prompts numbered `prompts_N`, as
    `share` does, with Wilson's interval for as many independent responses as they tell as much as
    (`independent`)."""
    value = float(values_N.mean())
    n = independent_count(values_N, prompts_N)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = (value + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(value * (1 - value) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return {
        "value": value,
        "low": max(0.0, middle - half),
        "high": min(1.0, middle + half),
        "count": len(values_N),
        "independent": n,
        "interval": "wilson",
    }


def share(credits: Sequence[float], *, confidence: float, seed: int) -> dict[str, Any]:
    """Return the mean over credits in 0 .. 1 with an interval: {value, low, high, count, interval}.

    Wilson's score interval (Wilson 1927) where every credit is 0 or 1, else the percentile
    bootstrap of the mean, since a tie that counts half is no Bernoulli trial. Null without credits.
    """
    count = len(credits)
    if not count:
        return {"value": None, "low": None, "high": None, "count": 0, "interval": None}
    values_N = np.asarray(credits, dtype=np.float64)
    if np.isin(values_N, (0.0, 1.0)).all():
        interval = binomtest(int(values_N.sum()), count).proportion_ci(confidence, method="wilson")
        method = "wilson"
    elif np.ptp(values_N) == 0:
        # All credits are the same fraction: nothing to resample.
        value = float(values_N[0])
        return {
            "value": value,
            "low": value,
            "high": value,
            "interval": "bootstrap",
            "count": count,
        }
    else:
        result = bootstrap(
            (values_N,),
            np.mean,
            confidence_level=confidence,
            n_resamples=_RESAMPLES,
            batch=max(1, CELLS // count),
            method="percentile",
            rng=np.random.default_rng(seed),
        )
        interval = result.confidence_interval
        method = "bootstrap"
    return {
        "value": float(values_N.mean()),
        "low": float(interval.low),
        "high": float(interval.high),
        "count": count,
        "interval": method,
    }
