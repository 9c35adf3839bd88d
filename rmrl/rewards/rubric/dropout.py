"""Rubric dropout: a share of the criteria is left out, another one in every step.

A policy that sees the same criteria in every step learns to satisfy these sentences. Which criteria
stay depends on prompt and step alone: all responses to a prompt are judged by the same ones, so
their scores compare, and a resumed run draws what the uninterrupted one would.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rmrl.rewards.rubric.criteria import Criterion


def kept_criteria(criteria: Sequence[Criterion], share: float, *, seed: str) -> list[int]:
    """Positions of the criteria that stay, ascending.

    floor(share * n) of the n criteria that are not must_have are left out, fewer where no criterion
    of positive weight would stay.
    """
    order = [i for i, criterion in enumerate(criteria) if not criterion.must_have]
    count = int(share * len(order) + 1e-9)  # 0.3 of 10 is 3
    random.Random(seed).shuffle(order)
    stays = set(range(len(criteria)))
    for position in order:
        if count == 0:
            break
        rest = stays - {position}
        if any(criteria[i].weight > 0 for i in rest):
            stays = rest
            count -= 1
    return sorted(stays)
