"""Peaks by hand, and the sentence that refuses."""

from __future__ import annotations

import pytest

from rmrl.cluster.ledger import Claim, MemoryPlan, gib
from rmrl.errors import MemoryPlanError

GIB = 2**30


def claim(who: str, awake: float, away: float, *when: str, alternates: bool = False) -> Claim:
    return Claim(who=who, what="m", awake_bytes=int(awake * GIB), away_bytes=int(away * GIB), when=when, alternates=alternates)


CLAIMS = [
    claim("training", 6, 4, "train"),
    claim("rollout", 5, 1, "rollout"),
    claim("judge", 3, 1, "score", alternates=True),
    claim("scalar", 2, 0.5, "score", alternates=True),
    claim("resident", 1, 1, "score"),
]


def test_peaks_by_hand() -> None:
    plan = MemoryPlan(CLAIMS, 100 * GIB)
    assert plan.peak("train") == (6 + 1 + 1 + 0.5 + 1) * GIB
    assert plan.peak("rollout") == (4 + 5 + 1 + 0.5 + 1) * GIB
    # judge and scalar take turns: both away (1 + 0.5), and the larger step from away to awake (3 - 1) on top
    assert plan.peak("score") == (4 + 1 + 1 + 0.5 + 2 + 1) * GIB


def test_what_fits_exactly_is_not_refused() -> None:
    MemoryPlan(CLAIMS, int(11.5 * GIB)).check()


def test_the_refusal_names_phase_need_budget_the_largest_and_the_remedies() -> None:
    with pytest.raises(MemoryPlanError) as caught:
        MemoryPlan(CLAIMS, 11 * GIB).check()
    message = str(caught.value)
    assert "phase 'rollout' needs 11.50 GiB and the device has 11.00 GiB" in message
    assert "largest: training 6.00 GiB, rollout 5.00 GiB, judge 3.00 GiB" in message
    assert "raise trainer.memory_budget_gb" in message
    assert "judge     m" in message  # the whole table follows
    assert caught.value.exit_code == 2


def test_the_table_says_who_takes_turns() -> None:
    lines = MemoryPlan(CLAIMS, 12 * GIB).table().splitlines()
    assert len(lines) == 2 + len(CLAIMS) + 1
    assert lines[4].split() == ["judge", "m", "3.00", "GiB", "1.00", "GiB", "score", "(in", "turn)"]
    assert lines[-1].strip() == "peak: rollout 11.50 GiB, score 9.50 GiB, train 9.50 GiB; budget 12.00 GiB"


def test_nobody_needs_nothing() -> None:
    plan = MemoryPlan([], 0)
    plan.check()
    assert plan.peak("train") == 0
    assert gib(3 * GIB // 2) == "1.50 GiB"
