"""Single responses with people's scores, or with right and wrong.

prompt, response
value                       a number, true or false, or several people's numbers in a list
subset, id, ground_truth    where they are there
"""

from __future__ import annotations

from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Format, mean
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import TieRule


class Absolute(Format):
    """Nothing is compared: scores are correlated with people's, and calibrated where the values are
    0 and 1."""

    source: ClassVar[str] = "docs/evaluation.md"
    ties: ClassVar[TieRule] = "share"

    def item(self, row: Fields) -> Item:
        """Return the response with people's mean score."""
        return Item(
            id=row.key(),
            subset=str(row.get("subset", "all")),
            prompt=row.prompt(),
            responses=(row.text("response"),),
            values=(mean(row.numbers("value")),),
            ground_truth=row.optional_text("ground_truth"),
            data_source=str(row.get("data_source", "")),
        )
