"""The ranking in what judges write about a list of numbered responses."""

from __future__ import annotations

import pytest

from rmrl.rewards.kinds.group.ranking import last_ranking


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("2 > 3 > 1", (0, 2, 1)),
        ("Ranking: Response 2 > Response 3 > Response 1.", (0, 2, 1)),
        ("[2]>[3]>[1]", (0, 2, 1)),
        ("1 > 2 > 3, or rather 3 > 2 > 1", (0, 1, 2)),
        ("3 > 2 > 1 and 3 > 2", (0, 1, 2)),
        ("Ranking: 2, 3, 1", (0, 2, 1)),
        ('{"ranking": [2, 3, 1]}', (0, 2, 1)),
        ("Ranking (best to worst): 2, 3, 1", (0, 2, 1)),
        ('{"ranking": ["2", "3", "1"]}', (0, 2, 1)),
        ("**2** >> **3** > **1**", (0, 2, 1)),
        ("(2) ≻ (3) ≻ (1)", (0, 2, 1)),
        # Places 1 and 0 are shared, then 2 and 1.
        ("2 > 1 = 3", (0.5, 2, 0.5)),
        ("[[2 ~ 1 > 3]]", (1.5, 1.5, 0)),
        ("1 = 2 = 3", (1, 1, 1)),
        ("My final ranking:\n\n1. Response 2\n2. Response 3\n3. Response 1", (0, 2, 1)),
        ("**Ranking**\n1. **Response 2** - right\n   It has 3 parts.\n2. #3\n3. #1", (0, 2, 1)),
        ("Rank 1: Response 2\nRank 2: Response 3\nRank 3: Response 1", (0, 2, 1)),
        ("Ranking:\n1. Response 1\n2. Response 2\n3. Response 3\n\nNo: 2 > 3 > 1", (0, 2, 1)),
        # A list that goes through the responses, one that lacks one, one with another start.
        (
            "I will rank them.\n1. Response 1 is right.\n2. Response 2 errs.\n3. Response 3 too.",
            None,
        ),
        ("Ranking:\n1. Response 2\n2. Response 3", None),
        ("Ranking:\n2. Response 2\n3. Response 3\n4. Response 1", None),
        ("1, 2, 3", None),
        ("1 > 2", None),
        ("1 > 2 > 2", None),
        ("1 > 2 > 4", None),
        ("", None),
    ],
)
def test_reading_a_ranking(text: str, scores: tuple[float, ...] | None):
    assert last_ranking(text, 3) == scores
