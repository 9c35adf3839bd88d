"""LLMBar (Zeng et al. 2023, arXiv:2310.07641): data and code princeton-nlp/LLMBar.

A row holds input, output_1, output_2 and label (1 or 2). A judge sees each pair in both orders. Its
accuracy is both's mean, no verdict is wrong. The published statistics name the original order False
and the swapped one True.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Figures, Format, Judged, mean_or_none, subset_means
from rmrl.evaluation.formats.pairs import PAIR_LABELS, pair
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import TieRule

ADVERSARIAL = "Adversarial/"


class LLMBar(Format):
    """Counting: a tie is not right. Two orders are averaged."""

    source: ClassVar[str] = "https://github.com/princeton-nlp/LLMBar"
    paths: ClassVar[Mapping[str, str]] = {"prompt": "input"}
    ties: ClassVar[TieRule] = "wrong"
    recorded: ClassVar[Mapping[str, Any]] = {
        "judge": ["evaluator", "mode"],
        "verdict": "winner",
        "verdict_swapped": "winner_swapped",
        "swapped_names": "original",
    }

    def item(self, row: Fields) -> Item:
        """Return the pair."""
        good = row.one_of("label", PAIR_LABELS)
        subset = str(row.get("subset", "all"))
        return pair(row, names=("output_1", "output_2"), good=good, subset=subset)

    def figures(self, items: Sequence[Item], judged: Judged) -> Figures:
        """Return the accuracy on natural pairs and the mean over the adversarial subsets."""
        del items
        accuracies = subset_means(judged.outcomes)
        adversarial = [value for name, value in accuracies.items() if name.startswith(ADVERSARIAL)]
        return {
            "natural": accuracies.get("Natural"),
            "adversarial": mean_or_none(adversarial),
        }
