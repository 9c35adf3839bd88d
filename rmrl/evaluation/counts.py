"""Count one judge's outcomes: accuracies, a pair's order, steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.evaluation.formats import Judged
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Outcome, category, truth
from rmrl.evaluation.measures.agreement import kappa
from rmrl.evaluation.measures.shares import share

Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Counting:
    """Shares with intervals at one coverage. `seed` is the bootstrap's."""

    confidence: float
    seed: int

    def share(self, credits: Sequence[float]) -> Numbers:
        """Return the credits' mean with its interval, as `measures.shares.share` does."""
        return share(credits, confidence=self.confidence, seed=self.seed)

    def accuracy(self, credits: Iterable[tuple[str, float]]) -> Numbers:
        """Return the accuracy over all (subset, credit) and by subset."""
        everything: list[float] = []
        subsets: defaultdict[str, list[float]] = defaultdict(list)
        for subset, credit in credits:
            everything.append(credit)
            subsets[subset].append(credit)
        by_subset: Numbers = {subset: self.share(subsets[subset]) for subset in sorted(subsets)}
        return {"accuracy": self.share(everything), "by_subset": by_subset}

    def choices(self, outcomes: Sequence[Outcome]) -> Numbers:
        """Return the choices' accuracy, with how many verdicts are missing and how many ties there
        are. A missing verdict is not right, and `of_verdicts` leaves it out."""
        credits: list[tuple[str, float]] = []
        answered: list[float] = []
        verdicts = 0
        missing = 0
        tied = 0
        for outcome in outcomes:
            credits.append((outcome.comparison.subset, outcome.credit))
            if not outcome.missing:
                answered.append(outcome.credit)
            for choice in outcome.choices:
                verdicts += 1
                missing += choice is None
                tied += choice is not None and len(choice) > 1
        return {
            **self.accuracy(credits),
            "of_verdicts": self.share(answered),
            "verdicts": verdicts,
            "missing": missing,
            "tied": tied,
        }

    def position(self, outcomes: Sequence[Outcome]) -> Numbers | None:
        """Return the accuracy in each order and in both. `consistent`: among pairs with two
        verdicts, the share on which both are the same. None where no pair was judged in both
        orders."""
        first: list[str] = []
        second: list[str] = []
        right: tuple[list[float], list[float], list[float]] = ([], [], [])
        same: list[float] = []
        for outcome in outcomes:
            if len(outcome.choices) != 2:
                continue
            label = truth(outcome.comparison)
            verdicts = list(map(category, outcome.choices))
            first.append(verdicts[0])
            second.append(verdicts[1])
            right[0].append(float(verdicts[0] == label))
            right[1].append(float(verdicts[1] == label))
            right[2].append(float(verdicts[0] == verdicts[1] == label))
            if all(verdicts):
                same.append(float(verdicts[0] == verdicts[1]))
        if not first:
            return None
        return {
            "first_order": self.share(right[0]),
            "second_order": self.share(right[1]),
            "both_orders": self.share(right[2]),
            "consistent": self.share(same),
            "kappa": kappa(first, second),
        }

    def steps(self, items: Sequence[Item], judge: Judged) -> Numbers:
        """Return the exact matches with the first wrong step. No verdict is no match."""
        matches: list[tuple[str, float]] = []
        missing = 0
        for item, judgement in zip(items, judge.judgements, strict=True):
            matches.append((item.subset, float(judgement.first_wrong == item.first_wrong)))
            missing += judgement.first_wrong is None
        return {
            **self.accuracy(matches),
            "verdicts": len(matches),
            "missing": missing,
            "tied": 0,
        }
