"""A judge against people, and judges against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from rmrl.evaluation.counts import Counting, Numbers
from rmrl.evaluation.formats import Judged
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Outcome, category, truth
from rmrl.evaluation.measures.agreement import alpha, alpha_of_numbers, kappa
from rmrl.evaluation.measures.people import against_values


def with_labels(items: Sequence[Item], outcomes: Sequence[Outcome]) -> Numbers:
    """Return the agreement between verdicts (in both orders) and the labels, and with each person
    where several voted. Where every label is the same, as in pairs with the better response first,
    chance explains any agreement: kappa and alpha are None."""
    labels: list[str] = []
    choices: list[str] = []
    units: list[tuple[str | None, str | None]] = []
    people: defaultdict[int, list[str]] = defaultdict(list)
    for outcome in outcomes:
        label = truth(outcome.comparison)
        for choice in outcome.choices:
            labels.append(label)
            choices.append(category(choice))
            units.append((label or None, category(choice) or None))
            for person, vote in enumerate(items[outcome.item].votes):
                people[person].append(category(vote))
    by_person: list[float | None] = [kappa(votes, choices) for votes in people.values()]
    numbers: Numbers = {"kappa": None, "alpha": None, "kappa_by_person": by_person}
    if len(set(filter(None, labels))) > 1:
        numbers |= {"kappa": kappa(labels, choices), "alpha": alpha(units)}
    return numbers


def with_values(items: Sequence[Item], judge: Judged, counting: Counting, *, bins: int) -> Numbers:
    """Compare scores with people's numbers, over all responses and by subset."""
    everything: list[tuple[float | None, float]] = []
    subsets: defaultdict[str, list[tuple[float | None, float]]] = defaultdict(list)
    for item, judgement in zip(items, judge.judgements, strict=True):
        scores = judgement.scores or (None,) * len(item.values)
        pairs = list(zip(scores, item.values, strict=True))
        everything += pairs
        subsets[item.subset] += pairs
    by_subset: Numbers = {
        subset: _against(subsets[subset], counting, bins=bins) for subset in sorted(subsets)
    }
    return {**_against(everything, counting, bins=bins), "by_subset": by_subset}


def _against(
    pairs: Sequence[tuple[float | None, float]], counting: Counting, *, bins: int
) -> Numbers:
    """Compare (score, number) pairs. `equal` is the share of scores that are the number itself."""
    scores, values = zip(*pairs, strict=True)
    equal: list[float] = [float(score == value) for score, value in pairs if score is not None]
    return {
        **against_values(scores, values, bins=bins),
        "missing": len(pairs) - len(equal),
        "equal": counting.share(equal),
    }


def between_judges(judges: Mapping[str, Judged], *, compares: bool) -> Numbers:
    """Return the judges' agreement: Cohen's kappa for each two and Krippendorff's alpha for all.
    Where responses are compared, both are over choices (in the first order). Else alpha is over
    numbers: the only response's score, or the step number that is called wrong."""
    ratings: dict[str, list[Any]] = {}
    for name, judge in judges.items():
        rating = ratings[name] = []
        if compares:
            rating += [outcome.first or None for outcome in judge.outcomes]
            continue
        for judgement in judge.judgements:
            number: float | None = judgement.first_wrong
            if judgement.scores:
                number = judgement.scores[0]
            rating.append(number)
    kappas: dict[str, dict[str, float | None]] = {}
    if compares:
        for first, second in combinations(ratings, 2):
            kappas.setdefault(first, {})[second] = kappa(ratings[first], ratings[second])
    if len(ratings) < 2:
        return {"kappa": kappas, "alpha": None}
    over = alpha if compares else alpha_of_numbers
    return {"kappa": kappas, "alpha": over(list(zip(*ratings.values(), strict=True)))}


def between_people(items: Sequence[Item]) -> Numbers:
    """Return kappa for each two people and alpha for all, over the items that have votes. None
    where items differ in how many votes they have."""
    votes: list[tuple[str, ...]] = [
        tuple(map(category, item.votes)) for item in items if item.votes
    ]
    if not votes or len(set(map(len, votes))) > 1:
        return {"people_kappa": [], "people_alpha": None}
    kappas = [kappa(first, second) for first, second in combinations(zip(*votes, strict=True), 2)]
    return {"people_kappa": kappas, "people_alpha": alpha(votes)}
