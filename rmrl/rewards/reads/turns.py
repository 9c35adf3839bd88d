"""A conversation's turns as texts that a reward reads.

    [role]                 a turn's heading in a transcript; [tool NAME] for a tool's result
    call: {...}            a tool call, on a line of its own

A line in a turn's own text that looks like a heading or a call is indented by a space, so a policy
or a tool cannot forge one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmrl.data.conversations import call_lines
from rmrl.types import Message, Messages, ScoreItem

JOINT = "\n\n"
_FORGED = re.compile(
    r"(?:^|(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]))"
    r"(?=\[\s*(?:system|developer|user|assistant|tool|function)\b|call:)",
    re.IGNORECASE,
)
"""Match the place before a heading or a call at the start of a line, after any character that ends
a line."""

_UNNAMED = re.compile(r"[][\s]+")
"""Characters that would end a heading in a tool's name."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TurnsText:
    """Several turns as one text."""

    text: str
    results: tuple[Span, ...]
    """The tools' results as places in the text."""


def prompt_turns(prompt: str | Messages) -> list[Message]:
    """Return a prompt as turns: a string is one user turn."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return list(prompt)


def conversation_of(item: ScoreItem) -> tuple[Messages, int]:
    """Return prompt and response as turns, and the number of the response's first turn. A response
    that is a text is one turn."""
    if item.conversation is not None:
        return item.conversation.messages, item.conversation.first
    response: Message = {"role": "assistant", "content": item.response}
    return (*item.messages, response), len(item.messages)


def turn_count(item: ScoreItem) -> int:
    """Return how many turns prompt and response have, as verl counts: 1 for the prompt, 1 for each
    of the response's assistant turns, and 1 for all that stands between two of these."""
    if item.conversation is None:
        return 2
    turns, first = conversation_of(item)
    count = 1
    own_before = False
    for turn in turns[first:]:
        own = turn["role"] == "assistant"
        count += own or own_before
        own_before = own
    return count


def assistant_turns(item: ScoreItem) -> list[int]:
    """Return the response's assistant turns as numbers among the turns that `conversation_of`
    returns."""
    turns, first = conversation_of(item)
    return [n for n in range(first, len(turns)) if turns[n]["role"] == "assistant"]


def turn_text(turn: Mapping[str, Any]) -> str:
    """Return an assistant turn as a response: its text, and its calls if it has some. A turn
    without calls keeps its text unchanged."""
    calls = call_lines(turn)
    if not calls:
        return turn["content"]
    return "\n".join([inert(turn["content"])] * bool(turn["content"]) + calls)


def inert(text: str) -> str:
    """Return a text without lines that look like a heading or a call."""
    return _FORGED.sub(" ", text)


def tools_text(item: ScoreItem) -> TurnsText:
    """Return the response's tool calls and their results, and nothing else."""
    turns, first = conversation_of(item)
    blocks: list[tuple[str, str, bool]] = []
    for turn in turns[first:]:
        blocks += [("", line, False) for line in call_lines(turn)]
        if turn["role"] == "tool":
            blocks.append((f"[{_heading(turn)}]\n", inert(turn["content"]), True))
    return _joined(blocks)


def transcript(item: ScoreItem) -> TurnsText:
    """Return the whole conversation: the prompt's turns and the response's.

    A response that is a text and continues the prompt's last turn stands in that turn.
    """
    turns, first = conversation_of(item)
    if item.conversation is None and first and turns[first - 1]["role"] == "assistant":
        begun: Any = turns[first - 1]
        # Calls stand behind the text that a turn begins with, and the response behind them.
        lines = [begun["content"]] * bool(begun["content"]) + call_lines(begun)
        whole: Any = {**begun, "content": "\n".join(lines) + item.response, "tool_calls": None}
        turns = (*turns[: first - 1], whole)
    return turns_text(turns)


def turns_text(turns: Messages) -> TurnsText:
    """Return turns as one text, each below its heading."""
    blocks: list[tuple[str, str, bool]] = []
    for message in turns:
        turn: Mapping[str, Any] = message
        thought = turn.get("reasoning_content")
        if isinstance(thought, str) and thought.strip():
            blocks.append((f"[{turn['role']} thinking]\n", inert(thought), False))
        lines = [inert(turn["content"])] * bool(turn["content"]) + call_lines(turn)
        blocks.append((f"[{_heading(turn)}]\n", "\n".join(lines), turn["role"] == "tool"))
    return _joined(blocks)


def _heading(turn: Mapping[str, Any]) -> str:
    name = turn.get("name")
    return f"{turn['role']} {_UNNAMED.sub(' ', name)}" if isinstance(name, str) else turn["role"]


def _joined(blocks: list[tuple[str, str, bool]]) -> TurnsText:
    """Join (heading, text, whether the text is a tool's result)."""
    text = ""
    results: list[Span] = []
    for heading, body, is_result in blocks:
        text += (JOINT if text else "") + heading
        if is_result:
            results.append((len(text), len(text) + len(body)))
        text += body
    return TurnsText(text, tuple(results))
