from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.scripts import load_script

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "assets" / "pair_accuracy.py"


@pytest.fixture(scope="module")
def pair_accuracy() -> ModuleType:
    return load_script(SCRIPT)


def test_the_three_layouts(pair_accuracy: ModuleType) -> None:
    llmbar = {
        "instruction": "q",
        "output_1": "bad",
        "output_2": "good",
        "label": 2,
        "subset": "Natural",
    }
    panda = {
        "instruction": "q",
        "input": "x",
        "response_1": True,
        "response_2": "bad",
        "annotators": [1, 1, 1],
    }
    hhh = {"instruction": "q", "chosen": "good", "rejected": "bad", "subset": "honest"}
    read = pair_accuracy.pair_of
    assert read(llmbar, "llmbar").subset == "llmbar/Natural"
    assert read(llmbar, "llmbar").chosen == "good"
    assert (read(panda, "pandalm").instruction, read(panda, "pandalm").chosen) == ("q\n\nx", "True")
    assert read(hhh, "hhh").rejected == "bad"


@pytest.mark.parametrize("annotators", [[1, 1, 2], [0, 0, 0], [1, 0, 1]])
def test_only_agreement_without_a_tie_counts(
    pair_accuracy: ModuleType, annotators: list[int]
) -> None:
    row = {"instruction": "q", "response_1": "a", "response_2": "b", "annotators": annotators}
    assert pair_accuracy.pair_of(row, "pandalm") is None


def test_an_unknown_layout_is_an_error(pair_accuracy: ModuleType) -> None:
    with pytest.raises(ValueError, match="'winner'"):
        pair_accuracy.pair_of({"winner": 1}, "mine")


def test_wilson_interval_of_five_in_ten(pair_accuracy: ModuleType) -> None:
    # centre 0.5; half = 1.96 * sqrt(0.25/10 + 3.8415/400) / 1.38415 = 0.2634
    low, high = pair_accuracy.wilson(5, 10)
    assert (low, high) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_a_tie_counts_a_half(pair_accuracy: ModuleType) -> None:
    pair = pair_accuracy.Pair(subset="s", instruction="q", chosen="a", rejected="b")
    rows = pair_accuracy.summary([pair] * 4, [1.0, 2.0, 3.0, 0.0], [0.0, 2.0, 1.0, 1.0])
    assert rows["s"]["accuracy"] == 0.625  # win, tie, win, loss
