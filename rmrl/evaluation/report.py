"""An evaluation's numbers, as a tree with plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.api import ProbabilityMap
from rmrl.config.schema import BenchmarkConfig
from rmrl.evaluation.calibrated import calibrated_numbers
from rmrl.evaluation.comparing import between_judges, between_people, with_labels, with_values
from rmrl.evaluation.counts import Counting, Numbers
from rmrl.evaluation.formats import Format, Judged
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Judgement, Outcome, TieRule, outcome_of
from rmrl.evaluation.measures.calibration import of_choices
from rmrl.evaluation.measures.length import controls, length_bias
from rmrl.evaluation.measures.pressure import under_pressure
from rmrl.evaluation.measures.weights import best_weights

COMBINED = "reward"
"""Name of the combined reward among the judges, where there are several components."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Judges and controls with their outcomes, and the report on both."""

    judges: Mapping[str, Judged]
    controls: Mapping[str, Judged]
    numbers: Numbers


def evaluate(
    items: Sequence[Item],
    judgements: Mapping[str, Sequence[Judgement]],
    *,
    form: Format,
    ties: TieRule,
    settings: BenchmarkConfig,
    calibrations: Mapping[str, ProbabilityMap] | None = None,
) -> Evaluation:
    """Count, compare with people, compare the judges, and put blind controls beside them.
    `calibrations`: judge -> the map for its scores, for judges that have one."""
    calibrations = calibrations or {}
    counting = Counting(settings.confidence, settings.seed)
    compares = any(item.comparisons for item in items)
    judges: dict[str, Judged] = {}
    reports: Numbers = {}
    for name, each in judgements.items():
        judges[name] = judged(items, each, form, ties)
        figures = form.figures(items, judges[name])
        numbers = judge_numbers(items, judges[name], counting, settings)
        numbers["pressure"] = under_pressure(
            items,
            each,
            judgements.get(settings.gold or ""),
            confidence=settings.confidence,
            seed=settings.seed,
        )
        if name in calibrations:
            numbers["calibrated"] = calibrated_numbers(
                items, judges[name], calibrations[name], counting, bins=settings.bins
            )
        reports[name] = {"figures": figures, **numbers}
    blind: dict[str, Judged] = {}
    blind_reports: Numbers = {}
    if compares:
        for name, each in controls(items, seed=settings.seed).items():
            blind[name] = judged(items, each, form, ties)
            blind_reports[name] = counting.choices(blind[name].outcomes)
    components: dict[str, Sequence[Outcome]] = {
        name: judge.outcomes for name, judge in judges.items() if name != COMBINED
    }
    weights = best_weights(components, confidence=settings.confidence, seed=settings.seed)
    report: Numbers = {
        "format": settings.format,
        "source": form.source,
        "items": len(items),
        "ties": ties,
        "confidence": settings.confidence,
        "judges": reports,
        "controls": blind_reports,
        "agreement": {**between_judges(judges, compares=compares), **between_people(items)},
        "weights": weights,
    }
    return Evaluation(judges=judges, controls=blind, numbers=finite(report))


def judged(
    items: Sequence[Item], judgements: Sequence[Judgement], form: Format, ties: TieRule
) -> Judged:
    """Return the judgements with all comparisons' outcomes."""
    outcomes: list[Outcome] = []
    for number, (item, judgement) in enumerate(zip(items, judgements, strict=True)):
        for comparison in item.comparisons:
            outcomes.append(
                outcome_of(number, comparison, judgement, ties=ties, orders=form.orders)
            )
    return Judged(judgements=judgements, outcomes=outcomes)


def finite(value: Any) -> Any:
    """Return the tree with null for NaN and infinities, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(finite, value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def judge_numbers(
    items: Sequence[Item], judge: Judged, counting: Counting, settings: BenchmarkConfig
) -> Numbers:
    """Return one judge's numbers, for each label kind that the items have."""
    numbers: Numbers = {}
    if judge.outcomes:
        numbers |= counting.choices(judge.outcomes)
        numbers["position"] = counting.position(judge.outcomes)
        numbers["calibration"] = of_choices(judge.outcomes, bins=settings.bins)
        numbers["length"] = length_bias(
            items, judge.outcomes, confidence=settings.confidence, seed=settings.seed
        )
        numbers["people"] = with_labels(items, judge.outcomes)
    if any(item.values for item in items):
        numbers["values"] = with_values(items, judge, counting, bins=settings.bins)
    if any(item.first_wrong is not None for item in items):
        numbers |= counting.steps(items, judge)
    return numbers
