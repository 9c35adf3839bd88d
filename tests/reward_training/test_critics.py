"""Rows whose responses got no critique."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import RewardLossConfig
from rmrl.reward_training import critics
from rmrl.reward_training.objectives.critique import CritiqueBradleyTerry
from rmrl.reward_training.read_examples import Split
from tests.reward_training.pairs import example

ROWS = [example(f"good {number}", "bad", prompt=f"p{number}") for number in range(4)]


@dataclass
class FakeWork:
    """What the critics read of the checked work."""

    split: Split
    out: Path
    objective: Any


async def test_a_run_that_goes_on_leaves_the_same_rows_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = Split(train=ROWS[:3], held_out=ROWS[3:], rows=4, excluded=0, overlapping=0)
    work: Any = FakeWork(split, tmp_path, CritiqueBradleyTerry(RewardLossConfig()))
    silent = {"good 1"}
    asked: list[list[str]] = []

    async def written(_: object, examples: Any) -> list[list[str | None]]:
        asked.append([each.responses[0] for each in examples])
        return [
            [None if text in silent else f"about {text}" for text in each.responses]
            for each in examples
        ]

    monkeypatch.setattr(critics, "_written", written)
    monkeypatch.setattr(critics, "with_split", lambda work, split: replace(work, split=split))
    first = await critics.with_critiques(work)
    assert [each.prompt for each in first.split.train] == ["p0", "p2"]
    assert [each.prompt for each in first.split.held_out] == ["p3"]
    assert first.split.train[0].critiques == ("about good 0", "about bad")
    assert first.split.without_critique == 1
    # The critic would answer now, and is not asked.
    silent.clear()
    second = await critics.with_critiques(work)
    assert second.split == first.split
    assert asked == [["good 0", "good 1", "good 2", "good 3"], ["good 0", "good 2", "good 3"]]
    # Of other rows the record says nothing.
    other = replace(work, split=replace(split, train=[*ROWS[:2], replace(ROWS[2], margin=1.0)]))
    assert (await critics.with_critiques(other)).split.without_critique == 0
