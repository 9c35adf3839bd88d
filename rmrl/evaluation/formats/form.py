"""A format: how a row becomes an item, how ties count, and the figures that the benchmark
publishes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Judgement, OrderRule, Outcome, TieRule

Figures = dict[str, float | None]
"""Name -> value. None where the judged rows do not hold what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One judge's judgements, one per item, and their outcomes, one per comparison."""

    judgements: Sequence[Judgement]
    outcomes: Sequence[Outcome]


class Format(Protocol):
    """One layout. Its class subclasses this one and states what differs. Its paths are its own
    names -> dotted paths in the published rows; `data.columns` may change each."""

    source: ClassVar[str]
    """Place where the layout and the counting are published."""
    ties: ClassVar[TieRule]
    paths: ClassVar[Mapping[str, str]] = {}
    orders: ClassVar[OrderRule] = "mean"
    recorded: ClassVar[Mapping[str, Any]] = {}
    """Entries of `eval.recorded_columns` for outputs of judges in the benchmark's own layout."""

    def item(self, row: Fields) -> Item:
        """Return the row as an item, without responses to leave out a row that has no label. Raises
        DataError naming file, row and column."""
        ...

    def figures(self, items: Sequence[Item], judged: Judged) -> Figures:
        """Return the figures that the benchmark publishes for a judge, shares from 0 to 1; {} where
        the report's accuracies are the figures."""
        del items, judged
        return {}


def subset_means(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Each subset's mean credit."""
    credits: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        credits[outcome.comparison.subset].append(outcome.credit)
    return {subset: mean(values) for subset, values in credits.items()}


def mean(values: Iterable[float]) -> float:
    """Arithmetic mean, NaN without values."""
    listed = list(values)
    if not listed:
        return math.nan
    return sum(listed) / len(listed)


def mean_or_none(values: Iterable[float]) -> float | None:
    """Arithmetic mean. None without values."""
    listed = list(values)
    if not listed:
        return None
    return mean(listed)
