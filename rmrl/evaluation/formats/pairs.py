"""Pairs of your own: `chosen` and `rejected`, or two responses and which one is better.

prompt, chosen, rejected                            texts or messages; the responses' may repeat the
                                                    prompt (UltraFeedback). Beside texts the prompt
                                                    may also be an instruction (with its input), a
                                                    question, a context, an input or a history
chosen, rejected                                    conversations with equal turns but for the last,
                                                    or texts that begin alike, as a dialogue
                                                    ("Human: ... Assistant: ...", HH) or by lines
messages, rejected_response                         ms-swift: the messages end with the better one
prompt, response_a, response_b, label               label: A, B or tie (also 1, 2 and 0)
instruction, output_1, output_2, label              the same labels
context, response1, response2, overall_preference   HelpSteer3: -3 to 3, below 0 the first is better
prompt, response_1, response_2, preference_strength HelpSteer2: the same
prompt, response_0, response_1, better_response_id  PKU-SafeRLHF: 0 or 1
history, human_ref_A, human_ref_B, labels           SHP: 1 where the first is better, else 0
question.full_text, answer_0, answer_1, score_1     WebGPT: below 0 the first is better
conversation_a, conversation_b, winner              Chatbot Arena: model_a, model_b or a tie
subset, id, ground_truth, data_source               where they are there
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import eq
from typing import Any, ClassVar, NamedTuple

from rmrl.data.dialogue import ANSWER, dialogue_turns
from rmrl.evaluation.formats.fields import Fields, Turns
from rmrl.evaluation.formats.form import Format
from rmrl.evaluation.formats.response_text import response_of, split_turns
from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import TieRule

_FIRST = frozenset({0})
_SECOND = frozenset({1})
_TIE = frozenset[int]()
PAIR_LABELS: Mapping[Any, frozenset[int]] = {
    "A": _FIRST, "a": _FIRST, "1": _FIRST, 1: _FIRST,
    "B": _SECOND, "b": _SECOND, "2": _SECOND, 2: _SECOND,
    "tie": _TIE, "Tie": _TIE, "0": _TIE, 0: _TIE,
}  # fmt: skip
_STRENGTHS = {-3: _FIRST, -2: _FIRST, -1: _FIRST, 0: _TIE, 1: _SECOND, 2: _SECOND, 3: _SECOND}
_ARENA = {
    "model_a": _FIRST, "model_b": _SECOND, "tie": _TIE, "tie (bothbad)": _TIE, "both_bad": _TIE,
}  # fmt: skip


class _Layout(NamedTuple):
    """Names of four columns, and each verdict's meaning: the better response's number. Without a
    column the prompt is what both conversations begin with; without meanings a number below 0 is
    for the first response, one above 0 for the second."""

    prompt: str
    first: str
    second: str
    verdict: str
    good: Mapping[Any, frozenset[int]]


_LAYOUTS = (
    _Layout("prompt", "response_a", "response_b", "label", PAIR_LABELS),
    _Layout("instruction", "output_1", "output_2", "label", PAIR_LABELS),
    _Layout("context", "response1", "response2", "overall_preference", _STRENGTHS),
    _Layout("prompt", "response_1", "response_2", "preference_strength", _STRENGTHS),
    _Layout("prompt", "response_0", "response_1", "better_response_id", {0: _FIRST, 1: _SECOND}),
    _Layout("history", "human_ref_A", "human_ref_B", "labels", {1: _FIRST, 0: _SECOND}),
    _Layout("question.full_text", "answer_0", "answer_1", "score_1", {}),
    _Layout("", "conversation_a", "conversation_b", "winner", _ARENA),
)
LAYOUTS = tuple(tuple(filter(None, layout[:4])) for layout in _LAYOUTS)
"""Sets of columns that `two_responses` reads."""


class LabelledPair(NamedTuple):
    """A prompt, "" where there is none, and two responses."""

    prompt: Turns
    responses: tuple[str, str]
    good: frozenset[int]
    """The better response's number; empty for a tie."""


class Pairs(Format):
    """Counting: tied scores are half right."""

    source: ClassVar[str] = "docs/evaluation.md"
    ties: ClassVar[TieRule] = "share"

    def item(self, row: Fields) -> Item:
        """Return the pair; `chosen` comes first where there is no label."""
        labelled = chosen_and_rejected
        if row.get("chosen") is None and row.get(_layout(row).verdict) is not None:
            labelled = two_responses
        prompt, responses, good = labelled(row)
        subset = str(row.get("subset", "all"))
        return _item(row, prompt or row.prompt(), responses, good=good, subset=subset)


def pair(row: Fields, *, names: tuple[str, str], good: frozenset[int], subset: str) -> Item:
    """Return an item with two responses that are compared once."""
    responses = (row.text(names[0]), row.text(names[1]))
    return _item(row, row.prompt(), responses, good=good, subset=subset)


def chosen_and_rejected(row: Fields) -> LabelledPair:
    """Read a row whose first response is the better one. Raises DataError also where the two belong
    to different prompts."""
    if row.get("rejected_response") is not None:
        prompt, better = split_turns(row, "messages", row.wanted("messages"))
        worse = response_of(row, "rejected_response", row.wanted("rejected_response"), prompt)
        return LabelledPair(prompt, (better, worse), _FIRST)
    chosen = row.wanted("chosen")
    rejected = row.wanted("rejected")
    if row.get("prompt") is not None:
        prompt = row.prompt()
        better = response_of(row, "chosen", chosen, prompt)
        worse = response_of(row, "rejected", rejected, prompt)
        return LabelledPair(prompt, (better, worse), _FIRST)
    before, responses = _conversations(row, "chosen", "rejected")
    column = row.prompt_column()
    if before:
        return LabelledPair(before, responses, _FIRST)
    if column is not None:
        return LabelledPair(row.prompt(column), responses, _FIRST)
    return _common_start(*responses)


def two_responses(row: Fields) -> LabelledPair:
    """Read a row with a verdict. Raises DataError for one that no layout has."""
    layout = _layout(row)
    if layout.prompt:
        prompt = row.prompt(layout.prompt)
        first = response_of(row, layout.first, row.wanted(layout.first), prompt)
        second = response_of(row, layout.second, row.wanted(layout.second), prompt)
    else:
        prompt, (first, second) = _conversations(row, layout.first, layout.second)
    if layout.good:
        good = row.one_of(layout.verdict, layout.good)
    else:
        strength, *_ = row.numbers(layout.verdict)
        good = _STRENGTHS[(strength > 0) - (strength < 0)]
    return LabelledPair(prompt, (first, second), good)


def _conversations(row: Fields, first: str, second: str) -> tuple[Turns, tuple[str, str]]:
    """Return the turns that two conversations begin with, and their last ones. Raises DataError
    where they part earlier."""
    before, response = split_turns(row, first, row.wanted(first))
    before_other, other = split_turns(row, second, row.wanted(second))
    if before != before_other:
        need = f"the turns of {first} but for the last one, or a prompt column"
        raise row.wrong(second, row.get(second), need)
    return before, (response, other)


def _layout(row: Fields) -> _Layout:
    """Return the layout that most of a row's columns belong to."""
    return max(_LAYOUTS, key=lambda each: sum(row.get(name) is not None for name in each[:4]))


def _common_start(better: str, worse: str) -> LabelledPair:
    """Split two texts behind the last "Assistant:" of a dialogue that they share, else behind the
    last line end. Without one the prompt is empty."""
    same = list(map(eq, better, worse))
    start = better[: same.index(False) if False in same else len(same)]
    cut = start.rfind(ANSWER) + len(ANSWER)
    turns = dialogue_turns(start[:cut])
    if turns:
        return LabelledPair(turns[:-1], (better[cut:].strip(), worse[cut:].strip()), _FIRST)
    cut = start.rfind("\n") + 1
    return LabelledPair(start[:cut].strip(), (better[cut:], worse[cut:]), _FIRST)


def _item(
    row: Fields,
    prompt: Turns,
    responses: tuple[str, str],
    *,
    good: frozenset[int],
    subset: str,
) -> Item:
    return Item(
        id=row.key(),
        subset=subset,
        prompt=prompt,
        responses=responses,
        comparisons=(Comparison(subset=subset, candidates=(0, 1), good=good),),
        ground_truth=row.optional_text("ground_truth"),
        data_source=str(row.get("data_source", "")),
    )
