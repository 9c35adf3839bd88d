"""Solutions as Math-Shepherd (arXiv:2312.08935) has them: two texts that differ in the steps'
marks.

input, label                        input: the question, then steps, each before its mark;
                                    label: the same text with + or - for each mark
"""

from __future__ import annotations

import re
from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form
from rmrl.reward_training.forms.steps import stepwise

MARK = "\u043a\u0438"
"""Stands behind each step of `input`: Cyrillic ka, i."""
FIRST_STEP = re.compile(r"\bStep 1:")
"""Where the question ends."""


class MathShepherd(Form):
    """The question ends where the first "Step 1:" begins."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (("input", "label"),)

    def example(self, row: Fields) -> Example:
        """Return the solution. Raises DataError where the two texts differ in more than marks."""
        text = row.text("input")
        marked = row.text("label")
        begin = FIRST_STEP.search(text)
        if begin is None or MARK not in text:
            raise row.wrong("input", text, f"a question, 'Step 1:', and '{MARK}' behind each step")
        pieces = text.split(MARK)
        labels: list[float] = []
        place = 0
        for piece in pieces[:-1]:
            mark = marked[place + len(piece) : place + len(piece) + 1]
            if marked[place : place + len(piece)] != piece or mark not in ("+", "-"):
                raise row.wrong("label", marked, f"the input with + or - for each '{MARK}'")
            labels.append(float(mark == "+"))
            place += len(piece) + 1
        pieces[0] = pieces[0][begin.start() :]
        question = text[: begin.start()].strip()
        return stepwise(row, question, pieces[:-1], labels, name="input")
