"""The thinking, the answer and the last message in what a policy wrote. Time is linear.

    thinking   between an opening mark and the next closing one of its kind (`rmrl.thinking`, or a
               user's own pair); up to a first closing mark that nothing opened, as the prompt did;
               the channel `analysis` of gpt-oss, with its special tokens or without
               ("analysis ... assistantfinal ..."); Granite 3.2's "Here is my thought process:" up
               to "Here is my response:"
    answer     all the rest
    final      the rest behind the last thinking block, tool call and tool result; of gpt-oss the
               channel `final`

An opening mark that nothing closes counts where a line begins with it: an answer may mention one. A
closing mark behind the first block is text, as it is for the parsers of servers: what a user would
see is what a reward reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rmrl.rewards.judging.channels import channel_messages
from rmrl.rewards.judging.thinking_blocks import Block, thinking_blocks
from rmrl.thinking import PAIRS

Span = tuple[int, int]
"""First character, and the one behind the last."""

_TOOLS = re.compile(
    r"(?:</tool_call>|<tool_call\|>|</tool_response>|\[/TOOL_RESULTS\]|<\|im_start\|>)"
    r"(?:[^\S\n]*\n?(?:<\|im_end\|>\s*)?(?:<\|im_start\|>)?assistant[^\S\n]*\n)?"
)
"""Ends of a tool's call and of its result, with the heading of the turn that follows."""

_GRANITE_OPEN = re.compile(r"\s*(?:Here's|Here is) my thought process:")
_GRANITE_CLOSE = re.compile(r"(?:Here's|Here is) my response:")


@dataclass(frozen=True, slots=True)
class ResponseParts:
    """Places of the parts of one response."""

    thinking: tuple[Span, ...]
    """Insides of the blocks."""
    answer: tuple[Span, ...]
    final: tuple[Span, ...]
    """One span, or none where the response has no last message."""
    unclosed: bool
    """The response ends inside its thinking; that block is the last of `thinking`."""

    def part(self, name: str) -> tuple[Span, ...]:
        """Return the spans of `reasoning`, `answer` or `final`."""
        return {"reasoning": self.thinking, "answer": self.answer, "final": self.final}[name]


def response_parts(
    text: str, *, opened: bool = False, tags: tuple[str, str] | None = None
) -> ResponseParts:
    """Return the parts of a response. `opened`: the prompt ended inside a thinking block; `tags`: a
    pair of marks that is looked for instead of the known ones."""
    if tags is None and not opened:
        messages = list(channel_messages(text))
        if messages:
            return ResponseParts(
                thinking=tuple((m.start, m.stop) for m in messages if m.channel == "analysis"),
                answer=tuple((m.start, m.stop) for m in messages if m.channel != "analysis"),
                final=tuple((m.start, m.stop) for m in messages if m.channel == "final")[-1:],
                unclosed=messages[-1].channel == "analysis" and not messages[-1].ended,
            )
    granite = _GRANITE_OPEN.match(text)
    if tags is not None:
        pairs = [(re.escape(tags[0]), re.escape(tags[1]))]
        blocks = thinking_blocks(text, pairs, opened=opened)
    elif granite is not None and not opened:
        end = _GRANITE_CLOSE.search(text, granite.end())
        if end is None:
            blocks = [Block(0, granite.end(), len(text), len(text), closed=False)]
        else:
            blocks = [Block(0, granite.end(), end.start(), end.end())]
    else:
        blocks = thinking_blocks(text, PAIRS, opened=opened)
    answer: list[Span] = []
    position = 0
    for block in blocks:
        answer.append((position, block.start))
        position = block.end
    answer.append((position, len(text)))
    last = position
    for tool in _TOOLS.finditer(text, position):
        last = tool.end()
    return ResponseParts(
        thinking=tuple((block.inner, block.inner_end) for block in blocks),
        answer=tuple(answer),
        final=((last, len(text)),),
        unclosed=bool(blocks) and not blocks[-1].closed,
    )
