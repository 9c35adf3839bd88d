"""Two responses and a verdict which one is better: columns as the format `pairs` of `rmrl eval` has
them. How much better it is has no effect: give a `margin` to the form `pairs` for that."""

from __future__ import annotations

from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.pairs import LAYOUTS, two_responses
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form, source_of


class TwoResponses(Form):
    """The better one comes first; the first one where they are equally good."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = LAYOUTS

    def example(self, row: Fields) -> Example:
        """Return both responses with their ranks. Raises DataError for another verdict."""
        pair = two_responses(row)
        better_first = -1 if 1 in pair.good else 1
        return Example(
            place=row.place,
            prompt=pair.prompt,
            responses=pair.responses[::better_first],
            before=pair.before[::better_first],
            source=source_of(row),
            ranks=(0, len(pair.good)),
        )
