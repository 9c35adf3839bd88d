"""The thinking, the answer and the last message in what a policy wrote. Time is linear.

    thinking   the block that the response begins with, between an opening mark and the next closing
               one of its pair (`rmrl.thinking`, or a user's own pair); up to a closing mark that
               nothing opened, as the prompt did; the channel `analysis` of gpt-oss, with its
               special tokens or without ("analysis ... assistantfinal ..."); Granite 3.2's "Here is
               my thought process:" up to "Here is my response:"
    answer     all the rest
    final      the rest behind the last tool call and tool result, without the block it begins with;
               of gpt-oss the channel `final`

Marks elsewhere are text, as they are for the parsers of servers: what a user would see is what a
reward reads, so a policy cannot hide a part of its answer between marks of thinking, and cannot
make an answer that stands there look like thinking that never ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rmrl.rewards.reads.channels import channel_messages
from rmrl.rewards.reads.thinking_blocks import Block, Pairs, leading_block
from rmrl.thinking import PAIRS

Span = tuple[int, int]
"""First character, and the one behind the last."""

_TOOLS = (
    ("<tool_call>", "</tool_call>"),
    ("<|tool_call>", "<tool_call|>"),
    ("<tool_response>", "</tool_response>"),
    ("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
)
"""Marks around a tool's call and its result."""
_TOOL_MARK = re.compile("|".join(re.escape(mark) for pair in _TOOLS for mark in pair))
_TURN = re.compile(r"[^\S\n]*\n?(?:<\|im_end\|>\s*)?(?:<\|im_start\|>)?assistant[^\S\n]*\n")
"""Heading of the turn behind a result."""

_GRANITE = (r"(?:Here's|Here is) my thought process:", r"(?:Here's|Here is) my response:")


@dataclass(frozen=True, slots=True)
class ResponseParts:
    """Places of one response's parts."""

    thinking: tuple[Span, ...]
    """Insides of the blocks."""
    answer: tuple[Span, ...]
    final: tuple[Span, ...]
    """None where the response has no last message."""
    unclosed: bool
    """The response is thinking that never ends."""

    def part(self, name: str) -> tuple[Span, ...]:
        """Return the spans of `reasoning`, `answer` or `final`."""
        return {"reasoning": self.thinking, "answer": self.answer, "final": self.final}[name]


def response_parts(
    text: str, *, opened: bool | None = None, tags: tuple[str, str] | None = None
) -> ResponseParts:
    """Return the parts of a response. `opened`: whether the prompt ended inside a thinking block.
    None: not known. `tags`: a pair of marks that is looked for instead of the known ones."""
    if tags is None and not opened:
        messages = channel_messages(text)
        if messages:
            shown = [m for m in messages if m.channel != "analysis"]
            return ResponseParts(
                thinking=tuple((m.start, m.stop) for m in messages if m.channel == "analysis"),
                answer=tuple((m.start, m.stop) for m in shown),
                final=tuple((m.start, m.stop) for m in shown if m.channel != "commentary"),
                unclosed=not shown and not messages[-1].ended,
            )
    pairs = marks(tags)
    block = None if tags is not None or opened else leading_block(text, [_GRANITE], opened=False)
    block = block or leading_block(text, pairs, opened=opened)
    block = block or Block(0, 0, 0, 0)
    last = block.end
    begun: set[str] = set()
    for mark in _TOOL_MARK.finditer(text, block.end):
        # A closing mark that nothing opened is text.
        for opening, closing in _TOOLS:
            if mark[0] == opening:
                begun.add(opening)
            elif mark[0] == closing and opening in begun:
                begun.remove(opening)
                turn = _TURN.match(text, mark.end())
                last = mark.end() if turn is None else turn.end()
    if last > block.end:
        own = leading_block(text[last:], pairs, opened=False)
        if own is not None and own.closed:
            last += own.end
    return ResponseParts(
        thinking=((block.inner, block.inner_end),) if block.end else (),
        answer=((0, block.start), (block.end, len(text))) if block.end else ((0, len(text)),),
        final=((last, len(text)),),
        unclosed=not block.closed,
    )


def marks(tags: tuple[str, str] | None) -> Pairs:
    """Return the pairs of marks that are looked for: a user's own, or the known ones."""
    return PAIRS if tags is None else [(re.escape(tags[0]), re.escape(tags[1]))]
