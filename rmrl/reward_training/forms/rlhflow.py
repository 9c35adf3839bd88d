"""Solutions as conversations in which each step is a question and its label the answer: RLHFlow's
sets for process rewards (RLHFlow/Mistral-PRM-Data).

conversations       turns of the user with a step each, the first behind the question; turns of the
                    assistant with + or -
"""

from __future__ import annotations

from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form
from rmrl.reward_training.forms.math_shepherd import FIRST_STEP
from rmrl.reward_training.forms.steps import stepwise

_LABELS = {"+": 1.0, "-": 0.0}


class RLHFlow(Form):
    """The question ends where the first "Step 1:" begins."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (("conversations",),)

    def example(self, row: Fields) -> Example:
        """Return the solution. Raises DataError for other turns, and without "Step 1:"."""
        turns = row.messages("conversations", row.need("conversations"))
        steps = [turn["content"] for turn in turns[::2]]
        labels = [_LABELS.get(turn["content"].strip()) for turn in turns[1::2]]
        known = [label for label in labels if label is not None]
        begin = FIRST_STEP.search(steps[0])
        if begin is None or len(known) < len(steps):
            need = "a question and 'Step 1:' in the first turn, and + or - behind each step"
            raise row.wrong("conversations", turns, need)
        question = steps[0][: begin.start()].strip()
        steps[0] = steps[0][begin.start() :]
        return stepwise(row, question, steps, known, name="conversations")
