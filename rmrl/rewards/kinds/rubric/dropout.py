"""Rubric dropout: a share of the criteria is left out, another one in every step.

A policy that sees the same criteria in every step learns to satisfy these sentences. Which criteria
stay depends on the text of the prompt and the step alone: all responses to a prompt are judged by
the same ones, so their scores compare, and a resumed run draws what the uninterrupted one would.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rmrl.rewards.kinds.rubric.combine import counts_alone
from rmrl.rewards.kinds.rubric.criteria import Criterion


def kept_criteria(
    criteria: Sequence[Criterion], share: float, *, seed: str, combine: str
) -> list[int]:
    """Positions of the criteria that stay, ascending.

    floor(share * n) of the n criteria that are not must_have are left out, fewer where none would
    stay by which `combine` gives a score (`counts_alone`), or none at all.
    """
    needed = {i for i, criterion in enumerate(criteria) if counts_alone(criterion, combine)}
    if not needed:
        needed = set(range(len(criteria)))
    order = [i for i, criterion in enumerate(criteria) if not criterion.must_have]
    count = int(share * len(order) + 1e-9)  # 0.3 of 10 is 3
    random.Random(seed).shuffle(order)
    stays = set(range(len(criteria)))
    for position in order:
        if count == 0:
            break
        rest = stays - {position}
        if rest & needed:
            stays = rest
            count -= 1
    return sorted(stays)
