"""benchmarks/score_rows.py compares the same rule on the same rows."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import score_rows, score_rows_peers


def test_the_rows_are_the_same_ones_and_every_side_can_score_them(tmp_path: Path) -> None:
    for name in ("first", "second"):
        score_rows.write_rows(tmp_path / name, 50, "gsm8k")
    text = (tmp_path / "first").read_text()
    assert text == (tmp_path / "second").read_text()
    rewards: list[float] = []
    for line in text.splitlines():
        row = json.loads(score_rows_peers.scored(line, "gsm8k"))
        answer = row["response"].rpartition("#### ")[2]
        assert row["reward"] == float(answer == row["reward_model"]["ground_truth"])
        rewards.append(row["reward"])
    assert 20 <= sum(rewards) <= 40  # three of five are right


def test_ratios_by_hand() -> None:
    assert score_rows.ratio([9.0, 8.0, 30.0], [10.0, 10.0, 10.0]) == 0.9
