"""Several responses to a prompt, in an order, with ties where two are equally good.

prompt, responses, ranks            0 is the best
prompt, responses, scores           the highest is the best
instruction, generations, ratings   the same by distilabel's names
context, completions                as NeMo RL reads them: messages, [{rank, completion: [...]}]
instruction, completions            as UltraFeedback has them: [{response, overall_score}]
prompt, answers                     as Nectar has them: [{answer, rank}]
question, answers                   as Stack Exchange's preferences: [{text, pm_score}]
"""

from __future__ import annotations

from typing import ClassVar

from rmrl.config.numbers import is_number
from rmrl.evaluation.formats.fields import Fields, Turns
from rmrl.evaluation.formats.response_text import response_of
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form, source_of

_OBJECTS = ("completions", "answers")
_NEED = (
    "a list of objects with completion or answer and rank, with response and overall_score, or with"
    " text and pm_score"
)


class Ranked(Form):
    """The best response comes first; among equal ones the first."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("prompt", "responses", "ranks"),
        ("prompt", "responses", "scores"),
        ("generations", "ratings"),
        ("context", "completions"),
        ("instruction", "completions"),
        ("prompt", "answers"),
        ("question", "answers"),
    )

    def example(self, row: Fields) -> Example:
        """Return the list. Raises DataError for lists with other lengths, or with one response."""
        objects = next((name for name in _OBJECTS if row.get(name) is not None), "")
        if objects and row.get("responses") is None:
            prompt, responses, ranks = _objects(row, objects)
        else:
            name = "generations" if row.get("generations") is not None else "responses"
            prompt = row.prompt_in_any_column()
            responses = [response_of(row, name, each, prompt) for each in row.need(name)]
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
    name = "ratings" if row.get("ratings") is not None else "scores"
    return [-score for score in row.numbers(name)]


def _objects(row: Fields, column: str) -> tuple[Turns, list[str], list[float]]:
    """Return a row's prompt, responses and ranks, where `column` has objects."""
    prompt = row.prompt_in_any_column()
    responses: list[str] = []
    ranks: list[float] = []
    for each in row.need(column):
        match each:
            case {"rank": rank, "completion": response} if is_number(rank):
                place = float(rank)
            case {"rank": rank, "answer": str(response)} if is_number(rank):
                place = float(rank)
            case {"overall_score": score, "response": str(response)} if is_number(score):
                place = -float(score)
            case {"pm_score": score, "text": str(response)} if is_number(score):
                place = -float(score)
            case _:
                raise row.wrong(column, each, _NEED)
        responses.append(response_of(row, column, response, prompt))
        ranks.append(place)
    return prompt, responses, ranks
