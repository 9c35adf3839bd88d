"""Solutions as PRM800K (arXiv:2305.20050) has them.

question, label                     question: {problem}; label: {steps: [{completions: [{text,
                                    rating}], chosen_completion, human_completion}]}

The solution goes through the chosen completions, and ends with the first that was rated -1. A
rating of 1 or 0 (neutral) is right, as in the paper's section 2.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form
from rmrl.reward_training.forms.steps import stepwise

_NEED = "an object with steps: [{completions: [{text, rating}], chosen_completion}]"


class Prm800k(Form):
    """A row has one response."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (("question.problem", "label.steps"),)

    def example(self, row: Fields) -> Example:
        """Return the solution. Raises DataError for other layouts."""
        texts: list[str] = []
        labels: list[float] = []
        for step in row.need("label.steps"):
            completion = _chosen(step)
            if completion is None:
                break
            match completion:
                case {"text": str(text)}:
                    rating = completion.get("rating")
                case _:
                    raise row.wrong("label.steps", step, _NEED)
            texts.append(text)
            labels.append(math.nan if rating is None else float(rating >= 0))
            if rating == -1:
                break
        return stepwise(row, row.text("question.problem"), texts, labels, name="label.steps")


def _chosen(step: Any) -> Any:
    """The completion with which a solution goes on; None where it ends."""
    if not isinstance(step, Mapping):
        return step
    completions = step.get("completions") or []
    number = step.get("chosen_completion")
    if number is not None:
        return completions[int(number)]
    if step.get("human_completion"):
        return step["human_completion"]
    # Nobody chose: a wrong completion ended the solution.
    return completions[0] if completions else None
