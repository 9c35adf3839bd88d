"""Length bias, and controls that do not depend on the content."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import neg
from typing import Any

from scipy.stats import spearmanr

from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Judgement, Outcome
from rmrl.evaluation.measures.correlation import correlation
from rmrl.evaluation.measures.shares import share


def controls(items: Sequence[Item], *, seed: int) -> dict[str, list[Judgement]]:
    """Return blind judges: the longest response wins, the shortest wins, one is drawn; "majority",
    the most frequent answer, where items have answers. Without texts only the draw is there."""
    draw = random.Random(seed)
    judgements: defaultdict[str, list[Judgement]] = defaultdict(list)
    have_texts = all(any(item.responses) for item in items)
    have_answers = all(item.answers for item in items)
    for item in items:
        lengths = list(map(len, item.responses))
        answers = Counter(item.answers)
        draws = [draw.random() for _ in item.responses]
        judgements["random"].append(Judgement(scores=tuple(draws)))
        if have_texts:
            judgements["longest"].append(Judgement(scores=tuple(map(float, lengths))))
            judgements["shortest"].append(Judgement(scores=tuple(map(float, map(neg, lengths)))))
        if have_answers:
            counts = map(answers.__getitem__, item.answers)
            judgements["majority"].append(Judgement(scores=tuple(map(float, counts))))
    return dict(judgements)


def length_bias(
    items: Sequence[Item], outcomes: Sequence[Outcome], *, confidence: float, seed: int
) -> dict[str, Any] | None:
    """Compare which response a judge chooses with length in characters. None without such pairs.

    {picks_longer, label_longer: shares of verdicts and of labels that name the longer one;
    better_is_longer, better_is_shorter: accuracy where that holds; spearman: rank correlation
    between the differences in score and length, None without scores}
    """
    picks: list[float] = []
    labels: list[float] = []
    credits: dict[bool, list[float]] = {True: [], False: []}
    score_differences: list[float] = []
    length_differences: list[float] = []
    for outcome in outcomes:
        longer = longer_response(items[outcome.item], outcome)
        if longer is None:
            continue
        labels.append(float(longer in outcome.comparison.good))
        credits[longer in outcome.comparison.good].append(outcome.credit)
        for choice in outcome.choices:
            if choice is not None and len(choice) == 1:
                picks.append(float(longer in choice))
        if outcome.scores:
            first, second = outcome.comparison.candidates
            texts = items[outcome.item].responses
            score_differences.append(outcome.scores[0] - outcome.scores[1])
            length_differences.append(float(len(texts[first]) - len(texts[second])))
    if not labels:
        return None
    return {
        "picks_longer": share(picks, confidence=confidence, seed=seed),
        "label_longer": share(labels, confidence=confidence, seed=seed),
        "better_is_longer": share(credits[True], confidence=confidence, seed=seed),
        "better_is_shorter": share(credits[False], confidence=confidence, seed=seed),
        "spearman": correlation(spearmanr, score_differences, length_differences),
    }


def longer_response(item: Item, outcome: Outcome) -> int | None:
    """Return the longer response's number in a labelled pair. None where both are equally long or
    the comparison is no pair with one right response."""
    comparison = outcome.comparison
    if len(comparison.candidates) != 2 or len(comparison.good) != 1:
        return None
    first, second = comparison.candidates
    difference = len(item.responses[first]) - len(item.responses[second])
    if difference > 0:
        return first
    if difference < 0:
        return second
    return None
