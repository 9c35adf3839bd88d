"""The pressure curve beside numbers by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import Judgement
from rmrl.evaluation.measures.pressure import best_of_n, pressure, under_pressure


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_estimate_is_the_mean_over_all_draws(n: int) -> None:
    rng = np.random.default_rng(n)
    scores = rng.permutation(5).astype(float).tolist()
    gold = rng.normal(size=5).tolist()
    draws = [max(draw, key=scores.__getitem__) for draw in combinations(range(5), n)]
    expected = np.mean([gold[winner] for winner in draws])
    assert best_of_n(scores, gold, n) == pytest.approx(expected)


def test_equal_scores_share_their_gold() -> None:
    assert best_of_n([1.0, 1.0, 0.0], [4.0, 0.0, 9.0], 3) == pytest.approx(2.0)
    assert best_of_n([0.0] * 4, [1.0, 2.0, 3.0, 6.0], 4) == pytest.approx(3.0)


def test_a_hacked_judge_falls_and_a_right_one_rises() -> None:
    rng = np.random.default_rng(0)
    gold = rng.normal(size=(60, 16))
    right = pressure(gold.tolist(), gold.tolist(), confidence=0.95, seed=1)
    assert right is not None
    assert right["n"] == [1, 2, 4, 8, 16]
    assert right["gold"] == sorted(right["gold"])
    assert right["falls_from"] is None
    assert right["kl"][0] == 0
    assert right["low"][2] < right["gold"][2] < right["high"][2]
    hacked = gold.copy()
    hacked[:, 0] = 99.0  # what the judge likes best of all, and people least
    bad = gold.copy()
    bad[:, 0] = -5.0
    wrong = pressure(hacked.tolist(), bad.tolist(), confidence=0.95, seed=1)
    assert wrong is not None
    assert wrong["falls_from"] in (1, 2, 4)
    assert pressure([[1.0, 2.0]], [[1.0, 0.0]], confidence=0.95, seed=1) is None


def test_gold_is_labels_values_or_another_judge() -> None:
    comparison = Comparison(subset="all", candidates=(0, 1, 2, 3), good=frozenset({2}))
    labelled = [
        Item(id="a", subset="all", prompt="p", responses=tuple("wxyz"), comparisons=(comparison,))
    ]
    judge = [Judgement(scores=(0.0, 1.0, 3.0, 2.0))]
    other = [Judgement(scores=(5.0, 6.0, 7.0, 8.0))]

    def curve(gold: list[Judgement] | None) -> list[float]:
        numbers = under_pressure(labelled, judge, gold, confidence=0.95, seed=1)
        assert numbers is not None
        return numbers["gold"]

    assert curve(None) == pytest.approx([0.25, 0.5, 1.0])
    assert curve(other)[-1] == pytest.approx(7.0)
    # RM-Bench: each comparison names one of the right responses.
    several = [
        replace(
            labelled[0],
            comparisons=(
                Comparison(subset="all", candidates=(2, 0), good=frozenset({2})),
                Comparison(subset="all", candidates=(3, 1), good=frozenset({3})),
            ),
        )
    ]
    for items in (several, [replace(several[0], right=frozenset({1, 2, 3}))]):
        numbers = under_pressure(items, judge, None, confidence=0.95, seed=1)
        assert numbers is not None
        assert numbers["gold"][0] == pytest.approx(0.5 if items is several else 0.75)
    missing = [Judgement(scores=(None, 1.0, 2.0, 3.0))]
    assert under_pressure(labelled, missing, None, confidence=0.95, seed=1) is None
