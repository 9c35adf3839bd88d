"""Pairs, a better and a worse response, as TRL's reward trainer reads them.

prompt, chosen, rejected            texts or messages; the responses' may repeat the prompt
                                    (UltraFeedback)
chosen, rejected                    conversations with equal turns but for the last, or texts that
                                    begin alike, as a dialogue ("Human: ... Assistant: ...", HH) or
                                    by whole lines
margin                              a number, where it is there: by how much the better is better
"""

from __future__ import annotations

from operator import eq
from typing import ClassVar

from rmrl.data.dialogue import ANSWER, dialogue_turns
from rmrl.evaluation.formats.fields import Fields
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import (
    Form,
    Turns,
    prompt_of,
    response_of,
    source_of,
    split_turns,
)


class Pairs(Form):
    """`chosen` comes first."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (("chosen", "rejected"),)

    def example(self, row: Fields) -> Example:
        """Return the pair. Raises DataError also where the two belong to different prompts."""
        chosen = row.need("chosen")
        rejected = row.need("rejected")
        if row.get("prompt") is not None:
            prompt = prompt_of(row)
            better = response_of(row, "chosen", chosen, prompt)
            worse = response_of(row, "rejected", rejected, prompt)
        else:
            prompt, better = split_turns(row, "chosen", chosen)
            before_worse, worse = split_turns(row, "rejected", rejected)
            if prompt != before_worse:
                need = "the turns of chosen but for the last one, or a prompt column"
                raise row.wrong("rejected", rejected, need)
            if not prompt:
                prompt, better, worse = _common_start(better, worse)
        margin = 0.0
        if row.get("margin") is not None:
            (margin,) = row.numbers("margin")[:1]
        return Example(
            place=row.place,
            prompt=prompt,
            responses=(better, worse),
            source=source_of(row),
            ranks=(0, 1),
            margin=margin,
        )


def _common_start(better: str, worse: str) -> tuple[Turns, str, str]:
    """Split two texts behind the last "Assistant:" of a dialogue that they share, else behind the
    last line end. Without one the prompt is empty."""
    same = list(map(eq, better, worse))
    start = better[: same.index(False) if False in same else len(same)]
    cut = start.rfind(ANSWER) + len(ANSWER)
    turns = dialogue_turns(start[:cut])
    if turns:
        return turns[:-1], better[cut:].strip(), worse[cut:].strip()
    cut = start.rfind("\n") + 1
    return start[:cut].strip(), better[cut:], worse[cut:]
