"""PandaLM's test set (Wang et al. 2023, arXiv:2306.05087): data and code WeOpenML/PandaLM.

A row holds instruction, input, response1, response2 and annotator1 to annotator3 (0 a tie, 1, 2).
The label is the annotators' most frequent vote, the first annotator's where all three differ. A
judge's unreadable output counts as a tie there (data/compute_metrics.py), and here as no verdict.
Published are accuracy and macro-averaged precision, recall and F1 over the three labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sklearn.metrics import precision_recall_fscore_support

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Figures, Format, Judged, mean
from rmrl.evaluation.formats.pairs import PAIR_LABELS
from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import TieRule, truth

_BOTH = frozenset({0, 1})
_CATEGORIES = ("0", "1", "tie")


class PandaLM(Format):
    """Counting: three labels, one being a tie."""

    source: ClassVar[str] = "https://github.com/WeOpenML/PandaLM"
    ties: ClassVar[TieRule] = "wrong"
    recorded: ClassVar[Mapping[str, Any]] = {"verdict": "result"}

    def item(self, row: Fields) -> Item:
        """Return the pair with its annotators' votes."""
        votes = [row.one_of(f"annotator{number}", PAIR_LABELS) for number in (1, 2, 3)]
        good = Counter(votes).most_common(1)[0][0]
        source = str(row.get("motivation_app", "all"))
        return Item(
            id=row.key(),
            subset=source,
            prompt=row.prompt("instruction"),
            responses=(row.text("response1"), row.text("response2")),
            comparisons=(Comparison(subset=source, candidates=(0, 1), good=good),),
            votes=tuple(vote or _BOTH for vote in votes),
        )

    def figures(self, items: Sequence[Item], judged: Judged) -> Figures:
        """Return accuracy, macro precision, recall and F1, no verdict being a tie as published."""
        del items
        labels: list[str] = []
        verdicts: list[str] = []
        matches: list[float] = []
        for outcome in judged.outcomes:
            label = truth(outcome.comparison)
            verdict = outcome.first or "tie"
            labels.append(label)
            verdicts.append(verdict)
            matches.append(float(verdict == label))
        undefined: Any = 0  # as published
        precision, recall, f1, _ = precision_recall_fscore_support(
            labels, verdicts, labels=_CATEGORIES, average="macro", zero_division=undefined
        )
        return {
            "accuracy": mean(matches),
            "precision": float(precision),
            "recall": float(recall),
            "f1": float(f1),
        }
