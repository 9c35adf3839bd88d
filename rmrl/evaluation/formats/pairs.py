"""Pairs of your own: `chosen` and `rejected`, or two responses with a label.

prompt, chosen, rejected                    strings (or messages); the first is the better one
prompt, response_a, response_b, label       label: A, B or tie (also 1, 2 and 0)
subset, id, ground_truth, data_source       where they are there
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Format
from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import TieRule

PAIR_LABELS: Mapping[Any, frozenset[int]] = {
    "A": frozenset({0}), "a": frozenset({0}), "1": frozenset({0}), 1: frozenset({0}),
    "B": frozenset({1}), "b": frozenset({1}), "2": frozenset({1}), 2: frozenset({1}),
    "tie": frozenset(), "Tie": frozenset(), "0": frozenset(), 0: frozenset(),
}  # fmt: skip


class Pairs(Format):
    """Counting: tied scores are half right."""

    source: ClassVar[str] = "docs/evaluation.md"
    ties: ClassVar[TieRule] = "share"

    def item(self, row: Fields) -> Item:
        """Return the pair; `chosen` comes first where there is no label."""
        if row.get("label") is None:
            names = ("chosen", "rejected")
            good = frozenset({0})
        else:
            names = ("response_a", "response_b")
            good = row.one_of("label", PAIR_LABELS)
        return pair(row, names=names, good=good, subset=str(row.get("subset", "all")))


def pair(row: Fields, *, names: tuple[str, str], good: frozenset[int], subset: str) -> Item:
    """Return an item with two responses that are compared once."""
    return Item(
        id=row.key(),
        subset=subset,
        prompt=row.prompt(),
        responses=(row.text(names[0]), row.text(names[1])),
        comparisons=(Comparison(subset=subset, candidates=(0, 1), good=good),),
        ground_truth=row.optional_text("ground_truth"),
        data_source=str(row.get("data_source", "")),
    )
