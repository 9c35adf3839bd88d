"""The share of repeated n-grams, by hand."""

from __future__ import annotations

import pytest

from reward_functions.repetition import compute_score


@pytest.mark.parametrize(
    ("response", "n", "score"),
    [
        ("", 3, 0),
        ("two words", 3, 0),
        ("one two three four", 3, 0),
        ("Again and again and AGAIN and", 2, -3 / 5),  # 2 pairs in 5 places
        ("a b c a b c a b c", 3, -4 / 7),  # abc, bca, cab in 7 places
        ("no " * 101, 1, -100 / 101),
    ],
)
def test_repeated_words_cost(response: str, n: int, score: float) -> None:
    assert compute_score("", response, None, n=n) == pytest.approx(score)
