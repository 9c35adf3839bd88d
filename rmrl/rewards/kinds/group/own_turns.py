"""Responses whose conversations part before the last turn, so that a comparison shows each with its
own turns."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from rmrl.rewards.reads.turns import JOINT, inert, prompt_turns, turns_text
from rmrl.types import Messages, ScoreItem


def with_own_turns(items: Sequence[ScoreItem]) -> list[ScoreItem]:
    """Return the items. Where prompts differ within a group, the turns that all of them begin with
    are the prompt, and the others stand before each response as in a transcript."""
    groups: defaultdict[int, list[Messages]] = defaultdict(list)
    for item in items:
        groups[item.group].append(prompt_turns(item.rm_prompt))
    shared: dict[int, int] = {}
    for group, prompts in groups.items():
        if any(prompt != prompts[0] for prompt in prompts):
            shared[group] = _shared(prompts)
    return [_parted(item, shared[item.group]) if item.group in shared else item for item in items]


def _shared(prompts: Sequence[Messages]) -> int:
    """Return how many turns all prompts begin with."""
    for count, turns in enumerate(zip(*prompts, strict=False)):
        if any(turn != turns[0] for turn in turns):
            return count
    return min(map(len, prompts))


def _parted(item: ScoreItem, shared: int) -> ScoreItem:
    """Return the item with `shared` turns as its prompt."""
    prompt = prompt_turns(item.rm_prompt)
    own = turns_text(prompt[shared:])
    before = f"{own.text}{JOINT * bool(own.text)}[assistant]\n"
    # A part may be a transcript itself, whose headings stay.
    response = item.response if item.whole is not None else inert(item.response)
    places = [(len(before) + first, len(before) + last) for first, last in item.tool_results]
    return dataclasses.replace(
        item,
        rm_prompt=tuple(prompt[:shared]) or "",
        response=before + response,
        tool_results=[*own.results, *places],
    )
