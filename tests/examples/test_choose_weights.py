"""examples/choose_weights runs as its page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.examples.script import output_of


def number(text: str, label: str) -> float:
    match = re.search(rf"^{label}: ([0-9.]+)", text, re.MULTILINE)
    assert match, text
    return float(match[1])


def test_fitted_weights_are_better_than_equal_ones_and_each_reward_alone(tmp_path: Path) -> None:
    printed = output_of("choose_weights", tmp_path)
    fitted = number(printed, "fitted weights, on unseen pairs")
    assert fitted > 0.85
    assert fitted > number(printed, "equal weights") + 0.05
    for name in ("gsm8k", "short", "even"):
        assert number(printed, f"{name} alone") < fitted - 0.1
    ordered = re.search(r"put (\d+) of 200 pairs in order", printed)
    assert ordered is not None
    assert int(ordered[1]) >= 170
