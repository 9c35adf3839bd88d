"""The data report and the figures of held-out rows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rmrl.reward_training.data_report import data_report, data_tables
from rmrl.reward_training.example import Example
from rmrl.reward_training.held_out import (
    TRAINED,
    UNTRAINED,
    full_report,
    held_out_table,
    length_matched,
    quick_figures,
)
from rmrl.reward_training.objectives.objective import Objective
from rmrl.reward_training.read_examples import Split
from rmrl.reward_training.tokens import Tokenized
from tests.reward_training.pairs import example

NOTHING = Tokenized(items=[], dropped=[], cut=[], unlabelled=[], lengths=[])


def pairs(count: int, *, seed: int = 0) -> list[Example]:
    """Pairs whose better response says "please", and is the longer one in three of four."""
    draw = random.Random(seed)
    made: list[Example] = []
    for number in range(count):
        filler = " word" * draw.randint(1, 9)
        better = f"please do {number}" + (filler if number % 4 else "")
        worse = f"never do {number}" + ("" if number % 4 else filler)
        place = f"pairs.jsonl row {number}"
        made.append(example(better, worse, prompt=f"p{number}", place=place))
    return made


def test_doubtful_rows_are_named() -> None:
    rows = pairs(40)
    rows.append(example(*rows[0].responses, prompt="p0", place="again"))
    rows.append(example(*reversed(rows[1].responses), prompt="p1", place="contrary"))
    rows.append(example("never do 50", "please do 50", prompt="p50", place="wrong label"))
    split = Split(train=rows, held_out=[], rows=44, excluded=1, overlapping=0)
    numbers = data_report(split, NOTHING, NOTHING, max_length=100)
    assert numbers["repeated"] == ["again"]
    assert numbers["contradicting"] == [("pairs.jsonl row 1", "contrary")]
    assert "wrong label" in numbers["most_suspected"]
    assert numbers["words"]["value"] > 0.9
    assert numbers["better_is_longer"]["count"] == 43
    flat = [cell for table in data_tables(numbers) for row in table for cell in row]
    assert "prompt stands in data.exclude_files" in flat


def test_pairs_of_matched_lengths_tell_a_judge_of_lengths_nothing() -> None:
    rows = pairs(400)
    numbers = length_matched(rows, seed=1)
    gaps = [len(rows[n].responses[0]) - len(rows[n].responses[1]) for n in numbers]
    assert sum(gap > 0 for gap in gaps) == sum(gap < 0 for gap in gaps) > 50
    assert length_matched(rows, seed=1) == numbers
    assert length_matched([], seed=1) == []


def test_figures_of_a_validation() -> None:
    rows = [
        example("good", "bad", source="a"),
        example("bad", "good", ranks=(1, 0), source="b"),
        example("one", "two", ranks=(0, 0), source="b"),
    ]
    figures = quick_figures(rows, [[2.0, 0.0], [1.0, 0.0], [5.0, 5.0]])
    assert figures["accuracy"] == 0.5
    assert (figures["a/accuracy"], figures["b/accuracy"]) == (1.0, 0.0)
    assert figures["margin"] == 0.5
    assert figures["loss"] == pytest.approx(np.log1p(np.exp(-2)) / 2 + np.log1p(np.exp(1)) / 2)
    assert figures["score_mean"] == pytest.approx(13 / 6)
    assert set(Objective.chosen_by) <= quick_figures(pairs(40), [[1.0, 0.0]] * 40).keys()


def test_every_baseline_stands_in_the_table() -> None:
    train = pairs(120, seed=1)
    held_out = pairs(80, seed=2)
    right = [[1.0, 0.0] for _ in held_out]
    judges = full_report(train, held_out, {TRAINED: right, UNTRAINED: [[0.0, 0.0]] * 80}, seed=1)
    assert {"words", "constant", "longest", "shortest", "random"} <= set(judges)
    assert judges[TRAINED]["accuracy"]["value"] == 1
    assert judges[TRAINED]["accuracy"]["interval"] == "wilson"
    assert judges["words"]["accuracy"]["value"] > 0.9
    assert judges["constant"]["accuracy"]["value"] == 0.5
    assert judges["longest"]["length_matched"]["value"] == 0.5
    assert judges["longest"]["accuracy"]["value"] == 0.75
    table = held_out_table(judges)
    assert [row[0] for row in table[1:3]] == [TRAINED, UNTRAINED]
