"""Audits of a few planted rewards; `python -m tests.audit.figures` runs all sixty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.figures import HALVES, outcome, planted

FEW = ("contains_the_answer", "cache_by_reference", "nights_only", "drops_the_fraction", "trl")


@pytest.mark.parametrize("name", FEW)
def test_a_fault_is_named_and_a_sound_reward_is_not_blamed(name: str, tmp_path: Path) -> None:
    result = outcome("first_half", name, tmp_path)
    assert result.is_right, result


def test_there_are_forty_broken_and_twenty_sound_rewards() -> None:
    causes = [each for half in HALVES for each in planted(half).values()]
    assert (len(causes) - causes.count(()), causes.count(())) == (40, 20)
