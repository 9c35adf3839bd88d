"""Pairs of your own: `chosen` and `rejected`, or two responses and which one is better.

chosen, rejected                                texts or messages; the responses' may repeat the
                                                prompt (UltraFeedback). Without a prompt:
                                                conversations with equal turns but for the last, or
                                                texts that begin alike, as a dialogue
                                                ("Human: ... Assistant: ...", HH) or by lines
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

from rmrl.data.dialogue import ANSWER, dialogue_turns
from rmrl.evaluation.formats.fields import Fields, Turns
from rmrl.evaluation.formats.form import Format
from rmrl.evaluation.formats.response_text import goes_on, response_of, split_turns
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


class Pairs(Format):
    """Counting: tied scores are half right."""

    source: ClassVar[str] = "docs/evaluation.md"
    ties: ClassVar[TieRule] = "share"

    def item(self, row: Fields) -> Item:
        """Return the pair; `chosen` comes first where there is no label."""
        prompt, responses, good = labelled_pair(row)
        subset = str(row.get("subset", "all"))
        return _item(row, prompt or row.prompt(), responses, good=good, subset=subset)


def pair(row: Fields, *, names: tuple[str, str], good: frozenset[int], subset: str) -> Item:
    """Return an item with two responses that are compared once."""
    responses = (row.text(names[0]), row.text(names[1]))
    return _item(row, row.prompt(), responses, good=good, subset=subset)


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
    prompt, responses = _prompt_and_responses(row, *names)
    if not prompt:
        prompt, responses = _common_start(*responses)
    return LabelledPair(prompt, responses, _FIRST)


def two_responses(row: Fields) -> LabelledPair:
    """Read a row with a verdict. Raises DataError for one that no layout has."""
    return _in_layout(row, _layout(row))


def _in_layout(row: Fields, layout: _Layout) -> LabelledPair:
    prompt, responses = _prompt_and_responses(row, layout.first, layout.second)
    if layout.good:
        good = row.one_of(layout.verdict, layout.good)
    else:
        strength, *_ = row.numbers(layout.verdict)
        good = _STRENGTHS[(strength > 0) - (strength < 0)]
    return LabelledPair(prompt, responses, good)


def _layout(row: Fields) -> _Layout:
    """Return the layout that most of a row's columns belong to."""
    return max(_LAYOUTS, key=lambda each: sum(row.get(name) is not None for name in each[:3]))


def _prompt_and_responses(row: Fields, *names: str) -> tuple[Turns, tuple[str, str]]:
    """Return the prompt, empty without one, and both responses. Raises DataError where they are
    conversations that part before their last turns."""
    first, second = (row.wanted(name) for name in names)
    before, response = split_turns(row, names[0], first)
    before_other, other = split_turns(row, names[1], second)
    if row.get("prompt") is not None:
        prompt = row.prompt()
        if before == before_other and goes_on(before, prompt):
            return before, (response, other)
        response = response_of(row, names[0], first, prompt)
        return prompt, (response, response_of(row, names[1], second, prompt))
    if before != before_other:
        need = f"the turns of {names[0]} but for the last one, or a prompt column"
        raise row.wrong(names[1], second, need)
    column = row.prompt_column()
    if before or column is None:
        return before, (response, other)
    return row.prompt(column), (response, other)


def _common_start(better: str, worse: str) -> tuple[Turns, tuple[str, str]]:
    """Split two texts behind the last "Assistant:" of a dialogue that they share, else behind the
    last line end. Without one the prompt is empty."""
    same = list(map(eq, better, worse))
    start = better[: same.index(False) if False in same else len(same)]
    cut = start.rfind(ANSWER) + len(ANSWER)
    turns = dialogue_turns(start[:cut])
    if turns:
        return turns[:-1], (better[cut:].strip(), worse[cut:].strip())
    cut = start.rfind("\n") + 1
    return start[:cut].strip(), (better[cut:], worse[cut:])


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
