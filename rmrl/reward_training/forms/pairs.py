"""Pairs, a better and a worse response: columns as the format `pairs` of `rmrl eval` has them.

chosen, rejected                with prompt, or with conversations or texts that begin alike
messages, rejected_response     as ms-swift has them
margin                          a number, where it is there: by how much the better is better
"""

from __future__ import annotations

from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.pairs import BETTER_AND_WORSE, chosen_and_rejected
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form, source_of


class Pairs(Form):
    """`chosen` comes first."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = BETTER_AND_WORSE

    def example(self, row: Fields) -> Example:
        """Return the pair. Raises DataError also where the two belong to different prompts."""
        pair = chosen_and_rejected(row)
        margin = 0.0
        if row.get("margin") is not None:
            (margin,) = row.numbers("margin")[:1]
        return Example(
            place=row.place,
            prompt=pair.prompt,
            responses=pair.responses,
            before=pair.before,
            source=source_of(row),
            ranks=(0, 1),
            margin=margin,
        )
