"""One judge's judgement on one item, from its scores or from its verdicts, and its worth.

winners    the responses in the first place: one, several for a tie, None for no verdict
credit     1 for a right choice, 0 for a wrong one and for no verdict; ties by the benchmark's
           own rule
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rmrl.evaluation.items import Comparison

Winners = frozenset[int] | None
TieRule = Literal["share", "wrong"]
"""What a tie for the first place is worth: the share of good responses in the tie, or nothing."""
OrderRule = Literal["mean", "majority"]
"""What two orders are worth: their mean, or 1 where more orders are right than wrong
(JudgeBench)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One judge's scores for one item, or its verdicts on it. `scores` or `verdicts` is given, for
    step labels also `first_wrong`."""

    scores: tuple[float | None, ...] = ()
    """One per response. None: no verdict."""
    verdicts: tuple[Winners, ...] = ()
    """Verdicts on a pair, one per order in which it was shown, numbered as in the item."""
    first_wrong: int | None = None
    """The step that the judge calls the first wrong one. -1: none. None: no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One judge's outcome in one comparison."""

    item: int
    """Number of the item."""
    comparison: Comparison
    choices: tuple[Winners, ...]
    """One entry per order, a single entry where the judgement is a list of scores."""
    scores: tuple[float, ...]
    """The candidates' scores. () where a candidate has none."""
    credit: float

    @property
    def missing(self) -> bool:
        """Return whether no order has a verdict."""
        return set(self.choices) == {None}

    @property
    def first(self) -> str:
        """Return the choice's `category` in the first order."""
        return category(self.choices[0])


def category(winners: Winners) -> str:
    """Return the winner's number, "tie", or "" without a verdict."""
    if winners is None:
        return ""
    if len(winners) != 1:
        return "tie"
    (winner,) = winners
    return str(winner)


def truth(comparison: Comparison) -> str:
    """Return the label like `category`. "" where several responses are right."""
    if len(comparison.good) > 1:
        return ""
    return category(comparison.good)


def outcome_of(
    number: int, comparison: Comparison, judgement: Judgement, *, ties: TieRule, orders: OrderRule
) -> Outcome:
    """Return one comparison's outcome for item `number`."""
    scores = candidate_scores(comparison, judgement)
    choices = judgement.verdicts
    if not choices:
        choices = (first_place(comparison, scores),)
    if comparison.every and scores:
        good, other = by_label(comparison, scores)
        credit = float(not other or min(good) > max(other))
    elif orders == "majority" and len(choices) > 1:
        credit = _majority(comparison, choices)
    else:
        credits = [credit_of(comparison, choice, ties=ties) for choice in choices]
        credit = sum(credits) / len(credits)
    return Outcome(
        item=number, comparison=comparison, choices=choices, scores=scores, credit=credit
    )


def candidate_scores(comparison: Comparison, judgement: Judgement) -> tuple[float, ...]:
    """Return the candidates' scores. () where a candidate has none."""
    scores: list[float] = []
    if judgement.scores:
        for number in comparison.candidates:
            score = judgement.scores[number]
            if score is None:
                return ()
            scores.append(score)
    return tuple(scores)


def first_place(comparison: Comparison, scores: Sequence[float]) -> Winners:
    """Return the candidates with the highest `scores`. None without scores."""
    if not scores:
        return None
    highest = max(scores)
    winners: list[int] = [
        number
        for number, score in zip(comparison.candidates, scores, strict=True)
        if score == highest
    ]
    return frozenset(winners)


def by_label(comparison: Comparison, scores: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the candidates' scores as (the right ones' scores, the others' scores)."""
    good: list[float] = []
    other: list[float] = []
    for number, score in zip(comparison.candidates, scores, strict=True):
        if number in comparison.good:
            good.append(score)
        else:
            other.append(score)
    return good, other


def credit_of(comparison: Comparison, choice: Winners, *, ties: TieRule) -> float:
    """Return one verdict's worth, 0 .. 1."""
    if choice is None:
        return 0.0
    if not comparison.good:
        return float(len(choice) == len(comparison.candidates))
    if choice <= comparison.good:
        return 1.0
    if ties == "wrong":
        return 0.0
    return len(choice & comparison.good) / len(choice)


def _majority(comparison: Comparison, choices: Sequence[Winners]) -> float:
    """Return 1 where right verdicts outnumber wrong ones. Ties and missing verdicts are neither."""
    balance = 0
    for choice in choices:
        if choice is None or len(choice) > 1:
            continue
        if choice <= comparison.good:
            balance += 1
        else:
            balance -= 1
    return float(balance > 0)
