"""Responses with an answer to a question about them.

prompt, response, question, label   label: one of the answers, its number, or true or false
prompt, response, question, distribution    each answer's probability: a list, or an object
prompt, completion, label           as in TRL's unpaired preferences, with data.question
answers                             from the worst to the best; No and Yes where it is left out
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rmrl.config.numbers import is_number
from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.response_text import response_of
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form, source_of
from rmrl.rewards.kinds.rubric.criteria import NO_YES

_SUM = 1e-3
"""Probabilities add up to 1 but for this."""


class Choice(Form):
    """A row has one response and one question."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("prompt", "response", "label"),
        ("prompt", "response", "distribution"),
        ("prompt", "completion", "label"),
    )

    def example(self, row: Fields) -> Example:
        """Return the response with its question and each answer's probability. Raises DataError for
        a label that is no answer."""
        answers = tuple(text for text, _ in NO_YES)
        if row.get("answers") is not None:
            answers = row.texts("answers")
        if len(set(answers)) < max(2, len(answers)):
            raise row.wrong("answers", answers, "two or more texts, all different")
        if row.get("distribution") is not None:
            distribution = _distribution(row, answers)
        else:
            number = _number(row, answers)
            distribution = tuple(float(place == number) for place in range(len(answers)))
        name = "response" if row.get("response") is not None else "completion"
        prompt = row.prompt()
        return Example(
            place=row.place,
            prompt=prompt,
            responses=(response_of(row, name, row.need(name), prompt),),
            source=source_of(row),
            question=str(row.get("question", "")).strip(),
            answers=answers,
            distribution=distribution,
        )


def _number(row: Fields, answers: Sequence[str]) -> int:
    """Return which answer the label is."""
    label = row.need("label")
    if isinstance(label, bool) and answers == tuple(text for text, _ in NO_YES):
        return int(label)
    if isinstance(label, str) and label in answers:
        return answers.index(label)
    if is_number(label) and not isinstance(label, bool) and label in range(len(answers)):
        return int(label)
    listed = ", ".join(answers)
    raise row.wrong("label", label, f"one of {listed}, or a number from 0 to {len(answers) - 1}")


def _distribution(row: Fields, answers: Sequence[str]) -> tuple[float, ...]:
    value: Any = row.need("distribution")
    if isinstance(value, Mapping) and set(value) <= set(answers):
        # A table fills up the answers of other rows with nulls.
        value = [value.get(answer) or 0.0 for answer in answers]
    right = isinstance(value, Sequence) and len(value) == len(answers)
    right = right and all(is_number(each) and each >= 0 for each in value)
    if not right or abs(sum(value) - 1) > _SUM:
        raise row.wrong(
            "distribution", value, f"{len(answers)} probabilities that add up to 1, one per answer"
        )
    return tuple(float(each) / sum(value) for each in value)
