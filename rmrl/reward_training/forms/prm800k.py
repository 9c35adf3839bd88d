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
        steps = row.need("label.steps")
        if not isinstance(steps, list | tuple):
            raise row.wrong("label.steps", steps, _NEED)
        for step in steps:
            match _chosen(step):
                case None:
                    break
                case {"text": str(text), "rating": int() | float() as rating}:
                    labels.append(float(rating >= 0))
                case {"text": str(text), **others} if others.get("rating") is None:
                    labels.append(math.nan)
                case _:
                    raise row.wrong("label.steps", step, _NEED)
            texts.append(text)
            if labels[-1] == 0:
                break
        return stepwise(row, row.text("question.problem"), texts, labels, name="label.steps")


def _chosen(step: Any) -> Any:
    """The completion with which a solution goes on, None where it ends. A step in another layout is
    returned as it is."""
    match step:
        case {"completions": list(completions), "chosen_completion": int(number)}:
            return completions[number] if 0 <= number < len(completions) else step
        case {"human_completion": Mapping() as written}:
            return written
        case {"completions": [first, *_]}:
            return first  # nobody chose: a wrong completion ended the solution
        case {"completions": [] | None}:
            return None
        case _:
            return step
