"""Several responses to a prompt, in an order, with ties where two are equally good.

prompt, responses, ranks            0 is the best
prompt, responses, scores           the highest is the best
context, completions                as NeMo RL reads them: messages, [{rank, completion: [...]}]
instruction, completions            as UltraFeedback has them: [{response, overall_score}]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rmrl.config.numbers import is_number
from rmrl.evaluation.formats.fields import Fields, Turns
from rmrl.evaluation.formats.response_text import response_of
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form, source_of

_NEED = "a list of objects with completion and rank, or with response and overall_score"


class Ranked(Form):
    """The best response comes first; among equal ones the first."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("prompt", "responses", "ranks"),
        ("prompt", "responses", "scores"),
        ("context", "completions"),
        ("instruction", "completions"),
    )

    def example(self, row: Fields) -> Example:
        """Return the list. Raises DataError for lists with other lengths, or with one response."""
        if row.get("completions") is not None:
            prompt, responses, ranks = _completions(row)
        else:
            prompt = row.prompt()
            responses = [
                response_of(row, "responses", each, prompt) for each in row.need("responses")
            ]
            ranks = _ranks_of(row)
        if len(responses) != len(ranks) or len(responses) < 2:
            raise row.wrong(
                "responses", responses, f"two or more responses, one for each of {len(ranks)} ranks"
            )
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        levels = sorted(set(ranks))
        return Example(
            place=row.place,
            prompt=prompt,
            responses=tuple(responses[number] for number in order),
            source=source_of(row),
            ranks=tuple(levels.index(ranks[number]) for number in order),
        )


def _ranks_of(row: Fields) -> list[float]:
    """Return a number per response, the smallest for the best one."""
    if row.get("ranks") is not None:
        return list(row.numbers("ranks"))
    return [-score for score in row.numbers("scores")]


def _completions(row: Fields) -> tuple[Turns, list[str], list[float]]:
    """Return a row's prompt, responses and ranks, where it has objects."""
    name = "context" if row.get("context") is not None else "instruction"
    prompt = row.prompt(name)
    responses: list[str] = []
    ranks: list[float] = []
    completions: Sequence[Any] = row.need("completions")
    for each in completions:
        match each:
            case {"rank": rank, "completion": completion} if is_number(rank):
                responses.append(response_of(row, "completions", completion, prompt))
                ranks.append(float(rank))
            case {"response": str(response), "overall_score": score} if is_number(score):
                responses.append(response)
                ranks.append(-float(score))
            case _:
                raise row.wrong("completions", each, _NEED)
    return prompt, responses, ranks
