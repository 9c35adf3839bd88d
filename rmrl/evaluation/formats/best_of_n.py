"""Several responses to a prompt, some right: which one does a reward pick?

prompt, responses           a list of strings
correct                     true or false for each response, or the number of the best one
answers                     the final answer of each, for the control "majority"
subset, id, ground_truth    where they are there
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Figures, Format, Judged, mean
from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import TieRule


class BestOfN(Format):
    """Counting: for a tie in the first place the share that is right, as if one was drawn."""

    source: ClassVar[str] = "docs/evaluation.md"
    ties: ClassVar[TieRule] = "share"

    def item(self, row: Fields) -> Item:
        """Return the responses with those that are right."""
        responses = row.texts("responses")
        subset = str(row.get("subset", "all"))
        answers = tuple(map(str, row.get("answers", ())))
        if answers and len(answers) != len(responses):
            raise row.wrong("answers", answers, f"one answer for each of {len(responses)}")
        return Item(
            id=row.key(),
            subset=subset,
            prompt=row.prompt(),
            responses=responses,
            comparisons=(
                Comparison(
                    subset=subset,
                    candidates=tuple(range(len(responses))),
                    good=right_responses(row, len(responses)),
                ),
            ),
            answers=answers,
            ground_truth=row.optional_text("ground_truth"),
            data_source=str(row.get("data_source", "")),
        )

    def figures(self, items: Sequence[Item], judged: Judged) -> Figures:
        """Return the share of right picks beside a blind and a perfect picker's."""
        del items
        credits: list[float] = []
        shares: list[float] = []
        possible: list[float] = []
        for outcome in judged.outcomes:
            credits.append(outcome.credit)
            comparison = outcome.comparison
            shares.append(len(comparison.good) / len(comparison.candidates))
            possible.append(float(bool(comparison.good)))
        return {
            "picked": mean(credits),
            "average": mean(shares),
            "oracle": mean(possible),
        }


def right_responses(row: Fields, count: int) -> frozenset[int]:
    """Return which responses are right among `count`, as numbers. Raises DataError."""
    value = row.need("correct")
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count:
        return frozenset({value})
    if isinstance(value, list | tuple) and len(value) == count:
        right: set[int] = {number for number, is_right in enumerate(value) if is_right}
        return frozenset(right)
    raise row.wrong(
        "correct", value, f"true or false for each of {count} responses, or a number below {count}"
    )
