"""Held-out figures: accuracy with Wilson intervals, on length-matched pairs and where the better
response is the shorter one, calibration, and the baselines in the same table."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rmrl.config.schema import BenchmarkConfig
from rmrl.evaluation.eval_tables import Rows, percent
from rmrl.evaluation.formats.pairs import Pairs
from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import Judgement
from rmrl.evaluation.measures.length import controls
from rmrl.evaluation.measures.shares import share
from rmrl.evaluation.report import evaluate
from rmrl.reward_training.example import Example, pairs_of
from rmrl.reward_training.text_baseline import fitted

Numbers = dict[str, Any]

TRAINED = "trained"
UNTRAINED = "untrained head"
_WORDS = "words"
BINS = 10
"""Bins of lengths, and of calibration curves."""
CONFIDENCE = 0.95
"""Of all intervals in the reports."""
_SETTINGS = BenchmarkConfig(format="pairs", confidence=CONFIDENCE)


def length_matched(pairs: Sequence[Example], *, seed: int) -> list[int]:
    """Return the positions that form a length-matched set: the better response is the longer one
    exactly as often as the shorter one, and by as much. Pairs go into ten bins by their length
    ratio, and each bin gives as many from either kind, drawn by the seed. Equal lengths belong to
    it."""
    ratios: list[float] = []
    for pair in pairs:
        better, worse = map(len, pair.responses)
        ratios.append(float(np.log(max(1, better) / max(1, worse))))
    edges = np.quantile(np.abs(ratios), np.linspace(0, 1, BINS + 1)[1:-1]) if ratios else []
    bins: defaultdict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    matched: list[int] = []
    for number, ratio in enumerate(ratios):
        if ratio == 0:
            matched.append(number)
        else:
            bins[int(np.searchsorted(edges, abs(ratio)))][int(ratio > 0)].append(number)
    draw = random.Random(seed)
    for shorter, longer in bins.values():
        count = min(len(shorter), len(longer))
        matched += draw.sample(shorter, count) + draw.sample(longer, count)
    return sorted(matched)


def quick_figures(examples: Sequence[Example], scores: Sequence[Sequence[float]]) -> Numbers:
    """Return one validation's figures: accuracy, also on matched lengths, margin, the scores' mean
    and spread, and accuracy by source where there are several."""
    pairs = pairs_of(examples)
    ends = _ends_of(examples, scores)
    margins = [best - worst for best, worst in ends]
    credits = list(map(_credit, margins))
    everything = np.concatenate([np.asarray(values) for values in scores])
    figures: Numbers = {
        "score_mean": float(everything.mean()),
        "score_std": float(everything.std()),
    }
    if not pairs:
        return figures
    matched = [credits[number] for number in length_matched(pairs, seed=1)]
    # -log sigmoid(gap) = log(1 + exp(-gap))
    losses_N = np.logaddexp(0, -np.asarray(margins))
    figures |= {
        "accuracy": float(np.mean(credits)),
        "margin": float(np.mean(margins)),
        "loss": float(losses_N.mean()),
    }
    if matched:
        figures["length_matched"] = float(np.mean(matched))
    by_source: defaultdict[str, list[float]] = defaultdict(list)
    for pair, credit in zip(pairs, credits, strict=True):
        by_source[pair.source].append(credit)
    if len(by_source) > 1:
        for source, values in by_source.items():
            figures[f"{source or 'no source'}/accuracy"] = float(np.mean(values))
    return figures


def full_report(
    train: Sequence[Example],
    held_out: Sequence[Example],
    scores: Mapping[str, Sequence[Sequence[float]]],
    *,
    seed: int,
) -> Numbers:
    """Return every judge's numbers: those in `scores` (name -> per held-out row a score for each
    response), words, constant, longest, shortest and a draw.

    `rmrl eval` counts the same way. The accuracy on length-matched pairs is added.
    """
    pairs = pairs_of(held_out)
    items = [_item(pair) for pair in pairs]
    judgements: dict[str, list[Judgement]] = {}
    for name, values in scores.items():
        judgements[name] = [Judgement(scores=ends) for ends in _ends_of(held_out, values)]
    baseline = fitted(pairs_of(train))
    if baseline is not None and pairs:
        logits = np.log(np.clip(baseline.probabilities(pairs), 1e-9, 1 - 1e-9))
        logits -= np.log(np.clip(1 - baseline.probabilities(pairs), 1e-9, 1 - 1e-9))
        judgements[_WORDS] = [Judgement(scores=(float(logit), 0.0)) for logit in logits]
    judgements["constant"] = [Judgement(scores=(0.0, 0.0)) for _ in pairs]
    judgements |= controls(items, seed=seed)
    report = evaluate(items, judgements, form=Pairs(), ties="share", settings=_SETTINGS)
    matched = length_matched(pairs, seed=seed)
    for name, judge in report.judges.items():
        credits = [judge.outcomes[number].credit for number in matched]
        figure = share(credits, confidence=CONFIDENCE, seed=seed)
        report.numbers["judges"][name]["length_matched"] = figure
    return report.numbers["judges"]


def held_out_table(judges: Mapping[str, Any]) -> Rows:
    """Return a line per judge with its accuracies and their intervals."""
    rows = [["held-out pairs", "accuracy", "length-matched", "better is shorter", "ECE"]]
    for name, judge in judges.items():
        cells = [with_interval(judge["accuracy"]), with_interval(judge["length_matched"])]
        cells.append(with_interval((judge["length"] or {}).get("better_is_shorter")))
        calibration = judge["calibration"]
        cells.append("-" if calibration is None else f"{calibration['ece']:.3f}")
        rows.append([name, *cells])
    return rows


def with_interval(figure: Numbers | None) -> str:
    """Return a share and its interval in percent. "-" without one."""
    if figure is None or figure["value"] is None:
        return "-"
    return f"{percent(figure['value'])} ({100 * figure['low']:.0f} .. {100 * figure['high']:.0f})"


def _ends_of(
    examples: Sequence[Example], scores: Sequence[Sequence[float]]
) -> list[tuple[float, float]]:
    """Return the best and the worst response's scores, for each example with an order."""
    return [
        (values[example.ends[0]], values[example.ends[1]])
        for example, values in zip(examples, scores, strict=True)
        if example.ends is not None
    ]


def _credit(gap: float) -> float:
    if gap == 0:
        return 0.5
    return float(gap > 0)


def _item(pair: Example) -> Item:
    return Item(
        id=pair.place,
        subset=pair.source or "all",
        prompt=pair.prompt,
        responses=pair.responses,
        comparisons=(
            Comparison(subset=pair.source or "all", candidates=(0, 1), good=frozenset({0})),
        ),
        data_source=pair.source,
    )
