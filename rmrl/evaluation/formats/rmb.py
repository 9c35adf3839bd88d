"""RMB (Zhou et al. 2024, arXiv:2410.09893): data Zhou-Zoey/RMB-Reward-Model-Benchmark.

Pairwise_set: pair_uid, conversation_input, chosen {answer}, reject {answer}, category_path.
BoN_set: bon_uid, conversation_input, bon_best {answer}, loser_list [{answer}], category_path; won
where the best response scores higher than every loser. A path's first part below the set names the
goal (Helpfulness, Harmlessness).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Figures, Format, Judged, mean
from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import TieRule


class RMB(Format):
    """Counting: only a strictly higher score wins."""

    source: ClassVar[str] = "https://github.com/Zhou-Zoey/RMB-Reward-Model-Benchmark"
    paths: ClassVar[Mapping[str, str]] = {
        "prompt": "conversation_input",
        "chosen": "chosen.answer",
        "rejected": "reject.answer",
        "best": "bon_best.answer",
        "losers": "loser_list",
        "category": "category_path",
    }
    ties: ClassVar[TieRule] = "wrong"

    def item(self, row: Fields) -> Item:
        """Return a pair or a best response with its losers, whichever the row holds."""
        category = str(row.get("category", "all"))
        if row.get("losers") is not None:
            uid = "bon_uid"
            responses = (row.text("best"), *row.texts("losers"))
        else:
            uid = "pair_uid"
            responses = (row.text("chosen"), row.text("rejected"))
        number = row.get(uid, row.key())
        return Item(
            id=f"{category}/{number}",
            subset=category,
            prompt=row.prompt(),
            responses=responses,
            comparisons=(
                Comparison(
                    subset=category,
                    candidates=tuple(range(len(responses))),
                    good=frozenset({0}),
                ),
            ),
        )

    def figures(self, items: Sequence[Item], judged: Judged) -> Figures:
        """Return the accuracy for each set and goal, such as "BoN_set/Helpfulness"."""
        del items
        credits: defaultdict[str, list[float]] = defaultdict(list)
        for outcome in judged.outcomes:
            parts = outcome.comparison.subset.split("/")
            credits["/".join(parts[:2])].append(outcome.credit)
        return {name: mean(values) for name, values in credits.items()}
