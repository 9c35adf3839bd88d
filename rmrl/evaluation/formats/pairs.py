"""Pairs of your own: `chosen` and `rejected`, or two responses and which one is better.

chosen, rejected                                texts or messages; the responses' may repeat the
                                                prompt (UltraFeedback). Without a prompt:
                                                conversations or dialogues ("Human: ...", HH)
                                                that begin with the same question, or texts that
                                                begin with the same lines
messages, rejected_response                     ms-swift: the messages end with the better one
response_a, response_b, label                   A, B or tie (also 1, 2 and 0)
output_1, output_2, label                       the same labels
response_1, response_2, label                   the same labels
output_1, output_2, preference                  AlpacaFarm: 1, 2 or a tie (1.5 or 0)
response1, response2, overall_preference        HelpSteer3: -3 to 3, below 0 the first is better
response_1, response_2, preference_strength     HelpSteer2: the same
response_0, response_1, better_response_id      PKU-SafeRLHF: 0 or 1
human_ref_A, human_ref_B, labels                SHP: 1 where the first is better, else 0
answer_0, answer_1, score_1                     WebGPT: below 0 the first is better
conversation_a, conversation_b, winner          Chatbot Arena: model_a, model_b or a tie
response_1, response_2, winner                  PPE: the same words
orig_response_A, orig_response_B, orig_preference   Preference Collection: A or B
summaries, choice                               OpenAI's comparisons of summaries: 0 or 1
response_j, response_k                          Stack Exchange: the first is better
prompt                                          a text or messages; else an instruction (with its
                                                input and history), a question, a context, an input,
                                                a history, messages, or conversations of ShareGPT
system                                          a text that comes before the prompt
subset, id, ground_truth, data_source           where they are there
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import eq
from typing import Any, ClassVar, NamedTuple

from rmrl.data.dialogue import dialogue_turns
from rmrl.evaluation.formats.fields import Fields, Turns
from rmrl.evaluation.formats.form import Format
from rmrl.evaluation.formats.response_text import (
    conversations_of,
    goes_on,
    response_of,
    split_turns,
    turns_of,
)
from rmrl.evaluation.items import Comparison, Item
from rmrl.evaluation.judgements import TieRule
from rmrl.types import Message

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
    "tie (inconsistent)": _TIE,
}  # fmt: skip


class _Layout(NamedTuple):
    """Names of three columns, and each verdict's meaning: the better response's number. Without
    meanings a number below 0 is for the first response, one above 0 for the second."""

    first: str
    second: str
    verdict: str
    good: Mapping[Any, frozenset[int]]


_LAYOUTS = (
    _Layout("response_a", "response_b", "label", PAIR_LABELS),
    _Layout("output_1", "output_2", "label", PAIR_LABELS),
    _Layout("response_1", "response_2", "label", PAIR_LABELS),
    _Layout("output_1", "output_2", "preference", {**PAIR_LABELS, 1.5: _TIE}),
    _Layout("response1", "response2", "overall_preference", _STRENGTHS),
    _Layout("response_1", "response_2", "preference_strength", _STRENGTHS),
    _Layout("response_0", "response_1", "better_response_id", {0: _FIRST, 1: _SECOND}),
    _Layout("human_ref_A", "human_ref_B", "labels", {1: _FIRST, 0: _SECOND}),
    _Layout("answer_0", "answer_1", "score_1", {}),
    _Layout("conversation_a", "conversation_b", "winner", _ARENA),
    _Layout("response_1", "response_2", "winner", _ARENA),
    _Layout("orig_response_A", "orig_response_B", "orig_preference", PAIR_LABELS),
    _Layout("summaries.0.text", "summaries.1.text", "choice", {0: _FIRST, 1: _SECOND}),
)
LAYOUTS = tuple(layout[:3] for layout in _LAYOUTS)
"""Sets of columns that `two_responses` reads."""
BETTER_AND_WORSE = (
    ("chosen", "rejected"), ("messages", "rejected_response"), ("response_j", "response_k"),
)  # fmt: skip
"""Sets of columns that `chosen_and_rejected` reads."""


class LabelledPair(NamedTuple):
    """A prompt, empty where there is none, and two responses."""

    prompt: Turns
    responses: tuple[str, str]
    good: frozenset[int]
    """The better response's number; empty for a tie."""
    before: tuple[tuple[Message, ...], ...] = ()
    """Turns between the prompt and each response, where two conversations part early."""


class Pairs(Format):
    """Counting: tied scores are half right."""

    source: ClassVar[str] = "docs/evaluation.md"
    ties: ClassVar[TieRule] = "share"

    def item(self, row: Fields) -> Item:
        """Return the pair; `chosen` comes first where there is no label."""
        labelled = labelled_pair(row)
        if not labelled.prompt:
            labelled = labelled._replace(prompt=row.prompt())
        return _item(row, labelled, subset=str(row.get("subset", "all")))


def pair(row: Fields, *, names: tuple[str, str], good: frozenset[int], subset: str) -> Item:
    """Return an item with two responses that are compared once."""
    responses = (row.text(names[0]), row.text(names[1]))
    return _item(row, LabelledPair(row.prompt(), responses, good), subset=subset)


def labelled_pair(row: Fields) -> LabelledPair:
    """Read a row in any of the layouts."""
    if row.get("chosen") is None:
        layout = _layout(row)
        if any(row.get(name) is not None for name in layout[:3]):
            return _in_layout(row, layout)
    return chosen_and_rejected(row)


def chosen_and_rejected(row: Fields) -> LabelledPair:
    """Read a row whose first response is the better one. Raises DataError also where the two belong
    to different prompts."""
    if row.get("rejected_response") is not None:
        prompt, better = split_turns(row, "messages", row.wanted("messages"))
        worse = response_of(row, "rejected_response", row.wanted("rejected_response"), prompt)
        return LabelledPair(prompt, (better, worse), _FIRST)
    names = ("chosen", "rejected")
    if row.get("response_j") is not None:
        names = ("response_j", "response_k")
    pair = _pair_at(row, *names, good=_FIRST)
    return pair if pair.prompt else _common_start(*pair.responses)


def two_responses(row: Fields) -> LabelledPair:
    """Read a row with a verdict. Raises DataError for one that no layout has."""
    return _in_layout(row, _layout(row))


def _in_layout(row: Fields, layout: _Layout) -> LabelledPair:
    if layout.good:
        good = row.one_of(layout.verdict, layout.good)
    else:
        strength, *_ = row.numbers(layout.verdict)
        good = _STRENGTHS[(strength > 0) - (strength < 0)]
    return _pair_at(row, layout.first, layout.second, good=good)


def _layout(row: Fields) -> _Layout:
    """Return the layout that most of a row's columns belong to."""
    return max(_LAYOUTS, key=lambda each: sum(row.get(name) is not None for name in each[:3]))


def _pair_at(row: Fields, *names: str, good: frozenset[int]) -> LabelledPair:
    """Read both responses' columns. Raises DataError where they are conversations that begin with
    different questions."""
    first, second = (row.wanted(name) for name in names)
    before, response = split_turns(row, names[0], first)
    before_other, other = split_turns(row, names[1], second)
    pair = _of_conversations(before, before_other, (response, other), good=good)
    if row.get("prompt") is not None:
        prompt = row.prompt()
        shared = turns_of(pair.prompt)
        if goes_on(shared, prompt) or (pair.before and shared == turns_of(prompt)):
            return pair
        response = response_of(row, names[0], first, prompt)
        return LabelledPair(prompt, (response, response_of(row, names[1], second, prompt)), good)
    if pair.before and not pair.prompt:
        need = f"a conversation that begins as {names[0]} does, or a prompt column"
        raise row.wrong(names[1], second, need)
    column = row.prompt_column()
    if before or column is None:
        return pair
    return pair._replace(prompt=row.prompt(column))


def _of_conversations(
    first: tuple[Message, ...],
    second: tuple[Message, ...],
    responses: tuple[str, str],
    *,
    good: frozenset[int],
) -> LabelledPair:
    """Return a pair from the turns before two responses. Its prompt ends with the last question
    that they share."""
    if first == second:
        return LabelledPair(first, responses, good)
    end = 0
    for number, (turn, other) in enumerate(zip(first, second, strict=False), 1):
        if turn != other:
            break
        if turn["role"] == "user":
            end = number
    return LabelledPair(first[:end], responses, good, (first[end:], second[end:]))


def _common_start(better: str, worse: str) -> LabelledPair:
    """Split two texts: dialogues before their last turns, others behind the last line end that they
    share. Without one the prompt is empty."""
    first, second = (_answered(dialogue_turns(text)) for text in (better, worse))
    if first and second:
        responses = (first[-1]["content"], second[-1]["content"])
        return _of_conversations(first[:-1], second[:-1], responses, good=_FIRST)
    same = list(map(eq, better, worse))
    start = better[: same.index(False) if False in same else len(same)]
    cut = start.rfind("\n") + 1
    return LabelledPair(start[:cut].strip(), (better[cut:], worse[cut:]), _FIRST)


def _answered(turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return a dialogue up to its last answer: some of HH's go on with a question."""
    while turns and turns[-1]["role"] == "user":
        turns = turns[:-1]
    return turns


def _item(row: Fields, labelled: LabelledPair, *, subset: str) -> Item:
    return Item(
        id=row.key(),
        subset=subset,
        prompt=labelled.prompt,
        responses=labelled.responses,
        conversations=conversations_of(labelled.before, labelled.responses),
        comparisons=(Comparison(subset=subset, candidates=(0, 1), good=labelled.good),),
        ground_truth=row.optional_text("ground_truth"),
        data_source=str(row.get("data_source", "")),
    )
