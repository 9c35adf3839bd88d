"""JudgeBench (Tan et al. 2024, arXiv:2410.12784): data and code ScalerLab/JudgeBench.

A row holds pair_id, source, question, response_A, response_B and label ("A>B" or "B>A"). A judge
sees a pair in both orders. It is right where its two verdicts name the better response more often
than the worse one, so that a win beside a tie or a missing verdict is a win (utils/metrics.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Figures, Format, Judged, mean, mean_or_none
from rmrl.evaluation.formats.pairs import pair
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import OrderRule, TieRule

LABELS: Mapping[Any, frozenset[int]] = {"A>B": frozenset({0}), "B>A": frozenset({1})}
CATEGORIES = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
"""Start of a source -> the category it is reported under."""


class JudgeBench(Format):
    """Counting: a tie is not right. Two orders are counted together."""

    source: ClassVar[str] = "https://github.com/ScalerLab/JudgeBench"
    paths: ClassVar[Mapping[str, str]] = {"id": "pair_id", "prompt": "question"}
    ties: ClassVar[TieRule] = "wrong"
    orders: ClassVar[OrderRule] = "majority"
    recorded: ClassVar[Mapping[str, Any]] = {
        "id": "pair_id",
        "judge": "judge_name",
        "verdict": "judgments.0.decision",
        "verdict_swapped": "judgments.1.decision",
    }

    def item(self, row: Fields) -> Item:
        """Return the pair under its source's category."""
        source = str(row.get("source", ""))
        subset = source or "all"
        for start, category in CATEGORIES.items():
            if source.startswith(start):
                subset = category
        good = row.one_of("label", LABELS)
        return pair(row, names=("response_A", "response_B"), good=good, subset=subset)

    def figures(self, items: Sequence[Item], judged: Judged) -> Figures:
        """Return the accuracy over all pairs and how many have opposite verdicts, as a share."""
        del items
        credits: list[float] = []
        changes: list[float] = []
        for outcome in judged.outcomes:
            credits.append(outcome.credit)
            if len(outcome.choices) > 1:
                changes.append(float(len(set(outcome.choices)) > 1))
        return {"score": mean(credits), "inconsistent": mean_or_none(changes)}
