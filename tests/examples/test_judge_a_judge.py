"""examples/judge_a_judge runs as its page says."""

from __future__ import annotations

from pathlib import Path

from tests.examples.script import output_of


def test_a_judge_is_compared_with_labels_and_blind_controls(tmp_path: Path) -> None:
    """`careful` is wrong on one pair, and half right on two: (12 - 1 - 1) / 12 = 0.833."""
    printed = output_of("judge_a_judge", tmp_path)
    lines = printed.splitlines()
    assert "careful: 0.833, 0.625 to 1.000" in lines
    assert "likes_length: 0.167, 0.047 to 0.448" in lines
    assert "control shortest: 0.875" in lines
    assert "likes_the_first: the same in both orders 0.000" in lines
    assert [line.split("'id': ")[1][:5] for line in lines[-3:]] == ["'p3',", "'p7',", "'p10'"]
