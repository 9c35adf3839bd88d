"""RM-Bench (Liu et al. 2024, arXiv:2410.16184): data and code THU-KEG/RM-Bench.

A row holds id, prompt, three chosen and three rejected responses (concise, detailed, detailed with
Markdown) and domain. Each chosen one meets each rejected one, nine comparisons in all. Only a
strictly higher score wins. Hard: the rejected response has the fancier style; normal: both have the
same; easy: the chosen one has the fancier style (README, "how to compute the accuracy").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Figures, Format, Judged, mean, mean_or_none
from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import TieRule

STYLES = 3
LEVELS = ("hard", "normal", "easy")


class RMBench(Format):
    """Counting: only a strictly higher score wins."""

    source: ClassVar[str] = "https://github.com/THU-KEG/RM-Bench"
    ties: ClassVar[TieRule] = "wrong"

    def item(self, row: Fields) -> Item:
        """Return the three chosen responses followed by the three rejected ones."""
        domain = str(row.need("domain"))
        chosen = row.texts("chosen")
        rejected = row.texts("rejected")
        for name, texts in (("chosen", chosen), ("rejected", rejected)):
            if len(texts) != STYLES:
                raise row.wrong(name, texts, f"{STYLES} responses, one of each style")
        comparisons: list[Comparison] = []
        for right in range(STYLES):
            for wrong in range(STYLES):
                level = "normal"
                if right < wrong:
                    level = "hard"
                elif right > wrong:
                    level = "easy"
                subset = f"{domain}/{level}"
                candidates = (right, STYLES + wrong)
                comparisons.append(
                    Comparison(subset=subset, candidates=candidates, good=frozenset({right}))
                )
        return Item(
            id=row.key(),
            subset=domain,
            prompt=row.prompt(),
            responses=(*chosen, *rejected),
            comparisons=tuple(comparisons),
        )

    def figures(self, items: Sequence[Item], judged: Judged) -> Figures:
        """Return domain and level accuracies; "score" is the domains' mean, safety's two parts
        counting as one."""
        del items
        credits: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for outcome in judged.outcomes:
            domain, _, level = outcome.comparison.subset.partition("/")
            credits[domain, level].append(outcome.credit)
        levels: dict[str, dict[str, float]] = {level: {} for level in LEVELS}
        by_domain: defaultdict[str, list[float]] = defaultdict(list)
        for (domain, level), values in credits.items():
            accuracy = mean(values)
            levels[level][domain] = accuracy
            by_domain[domain].append(accuracy)
        figures: Figures = {
            level: _over_domains(accuracies) for level, accuracies in levels.items()
        }
        domains = {domain: mean(values) for domain, values in by_domain.items()}
        return {**figures, **domains, "score": _over_domains(domains)}


def _over_domains(values: Mapping[str, float]) -> float | None:
    """Mean over domains, safety-refuse and safety-response being one."""
    merged: defaultdict[str, list[float]] = defaultdict(list)
    for domain, value in values.items():
        merged[domain.partition("-")[0]].append(value)
    return mean_or_none(map(mean, merged.values()))
