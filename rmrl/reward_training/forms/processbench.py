"""Solutions with their first wrong step's number, as ProcessBench (arXiv:2412.06559) has them.

problem, steps, label               label: from 0, or -1 where no step is wrong

Steps behind the first wrong one have no label.
"""

from __future__ import annotations

import math
from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form
from rmrl.reward_training.forms.steps import stepwise


class ProcessBench(Form):
    """A row has one response."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (("problem", "steps", "label"),)

    def example(self, row: Fields) -> Example:
        """Return the solution. Raises DataError for a label that is no step."""
        steps = row.texts("steps")
        label = row.need("label")
        if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(steps):
            raise row.wrong("label", label, f"a step from 0 to {len(steps) - 1}, or -1")
        labels = [1.0] * len(steps)
        if label >= 0:
            labels = [1.0] * label + [0.0] + [math.nan] * (len(steps) - label - 1)
        return stepwise(row, row.text("problem"), steps, labels, name="steps")
