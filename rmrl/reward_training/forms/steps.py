"""Responses with a label for each step, as TRL's process reward trainer reads them.

prompt, steps, labels               labels: true, false, or P(right) from 0 to 1; null where unknown
prompt, completions, labels         the same by TRL's names
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.processbench import SEPARATOR
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form, source_of
from rmrl.types import Message

_BLANK_LINES = re.compile(r"\n(\s*\n)+")
_NEED = "a list of steps, each with a letter or a digit"


class Steps(Form):
    """A row has one response."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("prompt", "steps", "labels"),
        ("prompt", "completions", "labels"),
    )

    def example(self, row: Fields) -> Example:
        """Return the response with its labels. Raises DataError where their numbers differ."""
        name = "steps" if row.get("steps") is not None else "completions"
        labels = row.need("labels")
        if not isinstance(labels, list | tuple):
            raise row.wrong("labels", labels, "a list with a label for each step")
        labels = [_label(row, each) for each in labels]
        return stepwise(row, row.prompt(), row.need(name), labels, name=name)


def stepwise(
    row: Fields,
    prompt: str | tuple[Message, ...],
    steps: Any,
    labels: Sequence[float],
    *,
    name: str,
) -> Example:
    """Return steps with labels as an example, a blank line between two steps. Blank lines within a
    step are removed. `name`: the steps' column.

    Raises DataError for a step without text, and where there is another number of labels.
    """
    texts: list[str] = []
    for step in steps if isinstance(steps, Sequence) and not isinstance(steps, str) else ():
        if not isinstance(step, str) or not re.search(r"\w", step):
            raise row.wrong(name, step, _NEED)
        texts.append(_BLANK_LINES.sub("\n", step.strip()))
    if not texts:
        raise row.wrong(name, steps, _NEED)
    if len(labels) != len(texts):
        raise row.wrong("labels", list(labels), f"{len(texts)} labels, one for each step")
    return Example(
        place=row.place,
        prompt=prompt,
        responses=(SEPARATOR.join(texts),),
        source=source_of(row),
        step_labels=tuple(labels),
    )


def _label(row: Fields, value: Any) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise row.wrong("labels", value, "true, false, null, or a number from 0 to 1")
    return float(value)
