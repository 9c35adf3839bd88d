"""examples/score_file runs as its page says."""

from __future__ import annotations

from pathlib import Path

from tests.examples.script import output_of


def test_the_best_response_to_each_question_is_printed(tmp_path: Path) -> None:
    printed = output_of("score_file", tmp_path)
    lines = printed.splitlines()
    assert lines[0] == "6 rows with 18 responses"
    # The last six lines: 1 + 0.5 * (1 - length / 80) of the shortest right response.
    assert lines[-6:] == [
        r"1.400  '3 + 4 = 7\n#### 7'",
        r"1.387  '2 * 6 = 12\n#### 12'",
        "1.456  '#### 70'",
        r"1.381  '24 - 3 = 21\n#### 21'",
        r"1.381  '50 / 2 = 25\n#### 25'",
        "1.419  'About 240 km.'",
    ]
