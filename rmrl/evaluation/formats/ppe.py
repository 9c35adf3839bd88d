"""PPE's correctness sets (Frick et al. 2024, arXiv:2410.14872): lmarena-ai/PPE-MATH-Best-of-K and
its likes.

A row holds question_id, model_name, prompt, response_1 to response_K, scores (true or false for
each response) and sampled_conflict_pairs (a right and a wrong response's numbers, from 0). These
pairs are compared. The pressure curve reads the scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Format
from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import TieRule

_PAIRS = "sampled_conflict_pairs"


class PPE(Format):
    """Counting: tied scores are half right."""

    source: ClassVar[str] = "https://huggingface.co/datasets/lmarena-ai/PPE-MATH-Best-of-K"
    paths: ClassVar[Mapping[str, str]] = {"id": "question_id", "subset": "model_name"}
    ties: ClassVar[TieRule] = "share"

    def item(self, row: Fields) -> Item:
        """Return the responses with the pairs among them that are compared."""
        scores = row.numbers("scores")
        subset = str(row.get("subset", "all"))
        comparisons: list[Comparison] = []
        pairs = row.need(_PAIRS)
        for pair in pairs if isinstance(pairs, list) else [pairs]:
            good = _better(pair, scores)
            if good is None:
                need = f"pairs of a right and a wrong response, numbers from 0 to {len(scores) - 1}"
                raise row.wrong(_PAIRS, pair, need)
            comparisons.append(
                Comparison(subset=subset, candidates=tuple(pair), good=frozenset({good}))
            )
        return Item(
            id=row.key(),
            subset=subset,
            prompt=row.prompt(),
            responses=tuple(row.text(f"response_{n}") for n in range(1, len(scores) + 1)),
            comparisons=tuple(comparisons),
            right=frozenset(number for number, score in enumerate(scores) if score),
        )


def _better(pair: Any, scores: Sequence[float]) -> int | None:
    """Return the better response's number, None for anything but a better and a worse one's."""
    numbers = range(len(scores))
    match pair:
        case [int(first), int(second)] if first in numbers and second in numbers:
            if scores[first] == scores[second]:
                return None
            return max(first, second, key=scores.__getitem__)
        case _:
            return None
