"""Label mass: how likely a judge is to begin its answer with any of the labels at all.

Shares among the labels say nothing about it: a judge that would write "I" in 98 cases, "Yes" in one
and "No" in one has shares of one half. The mass, here 0.02, is the sum of the labels' probabilities
as the first token, from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def label_mass(logprobs: Sequence[float]) -> float:
    """Return the sum of the probabilities, at most 1. `logprobs` has one for each label."""
    return min(1.0, math.fsum(map(math.exp, logprobs)))


def mass_problems(least: float, where: str, *, read: bool) -> list[str]:
    """Return what is wrong with the entry `min_label_mass`, as sentences that begin with `where`.

    `read`: whether the reward reads probabilities, so that there is a mass.
    """
    if least and not read:
        return [
            f"{where}.min_label_mass={least:g}: nothing reads the probabilities of labels here;"
            " leave it out, or let the judge be asked for its verdict with verdict=ask"
        ]
    return []


def mass_reason(mass: float, least: float) -> str:
    """Say that the labels are too unlikely for a verdict. "" where they are not."""
    if mass >= least:
        return ""
    return (
        f"the judge begins with one of the labels with probability {mass:.3g}, below"
        f" min_label_mass={least:g}"
    )
