"""Tables for people: the first scores."""

from __future__ import annotations

import numpy as np

from rmrl.rewards.entries.listing import observed_table
from rmrl.types import RewardBatch, ScoreResult, Scores


def test_the_first_scores_have_their_moments_and_the_causes_of_missing_verdicts():
    timeout = ScoreResult(value=None, status="timeout")
    unread = ScoreResult(value=None, status="unparseable")
    batch = RewardBatch(
        scores=Scores(
            names=("exact", "judge"),
            results=(
                tuple(ScoreResult(value=value) for value in (0.0, 1.0, 1.0, 2.0)),
                (timeout, unread, timeout, timeout),
            ),
        ),
        weights_C=np.asarray([1.0, 0.5]),
        rewards_B=np.asarray([0.0, 1.0, 1.0, 2.0]),
        keep_B=np.ones(4, dtype=bool),
    )
    # mean 4 / 4, population variance (1 + 0 + 0 + 1) / 4
    assert observed_table(batch).splitlines() == [
        "first scores",
        "  reward  weight  mean  std    min  max  no verdict",
        "  exact   1       1     0.707  0    2    0",
        "  judge   0.5     -     -      -    -    3 timeout, 1 unparseable",
    ]
