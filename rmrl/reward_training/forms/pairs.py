"""Pairs, a better and a worse response, as TRL's reward trainer reads them.

prompt, chosen, rejected            texts or messages
chosen, rejected                    conversations with equal turns but for the last, or texts that
                                    begin alike
margin                              a number, where it is there: by how much the better is better
"""

from __future__ import annotations

from operator import eq
from typing import ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms.form import Form, source_of, split_turns, turns_of
from rmrl.types import Message


class Pairs(Form):
    """`chosen` comes first."""

    columns: ClassVar[tuple[tuple[str, ...], ...]] = (("chosen", "rejected"),)

    def example(self, row: Fields) -> Example:
        """Return the pair. Raises DataError also where the two belong to different prompts."""
        raw_prompt = row.get("prompt")
        prompt: str | tuple[Message, ...] = ""
        if raw_prompt is not None:
            prompt = turns_of(row, "prompt", raw_prompt)
        has_prompt = raw_prompt is not None
        chosen = row.need("chosen")
        rejected = row.need("rejected")
        before, better = split_turns(row, "chosen", chosen, has_prompt=has_prompt)
        before_worse, worse = split_turns(row, "rejected", rejected, has_prompt=has_prompt)
        if before != before_worse:
            raise row.wrong(
                "rejected", rejected, "the turns of chosen but for the last one, or a prompt column"
            )
        if not has_prompt and before:
            prompt = before
        elif not has_prompt:
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


def _common_start(better: str, worse: str) -> tuple[str, str, str]:
    """Split two texts behind the last line end that they share. Without one the prompt is empty."""
    same = list(map(eq, better, worse))
    start = better[: same.index(False) if False in same else len(same)]
    cut = start.rfind("\n") + 1
    return start[:cut].strip(), better[cut:], worse[cut:]
