"""Messages of gpt-oss, which writes each into a channel: analysis, commentary or final.

The form is that of OpenAI's harmony (github.com/openai/harmony, docs/format.md):

    <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>

and without its special tokens

    analysis...assistantfinal...
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CHANNEL = (
    r"<\|channel\|>(analysis|commentary|final)\b(?:(?!<\|(?:message|start)\|>).){0,120}"
    r"<\|message\|>"
)
_FIRST = re.compile(rf"\s*(?:<\|start\|>assistant[^<\n]{{0,80}})?{_CHANNEL}")
_NEXT = re.compile(rf"<\|start\|>assistant[^<\n]{{0,80}}{_CHANNEL}")
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_END = re.compile(r"<\|(?:end|return|call)\|>")

_BARE_FIRST = re.compile(r"\s*(analysis)")
_BARE_NEXT = re.compile(
    r"assistant(?: to=\S+?)?(analysis|commentary|final)(?:\s*to=\S+\s*(?:json|code)?)?"
)


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    """Place of one message in a text, and whether it came to an end."""

    channel: str
    """analysis, commentary, final, or "" for text between messages."""
    start: int
    stop: int
    ended: bool


def channel_messages(text: str) -> list[ChannelMessage]:
    """Return the messages of a text in order; none for a text of another form. Time is linear.

    The text has to begin with a channel. Without the special tokens with the word analysis, and the
    channel final or commentary has to follow: a text may begin with that word. The channel final
    reaches to the end, whatever marks it mentions.
    """
    first = _FIRST.match(text)
    following = _NEXT
    if first is None:
        first = _BARE_FIRST.match(text)
        following = _BARE_NEXT
    if first is None:
        return []
    headers = [first]
    for header in following.finditer(text, first.end()):
        if headers[-1][1] == "final":
            break
        headers.append(header)
    bare = following is _BARE_NEXT
    if bare and all(header[1] == "analysis" for header in headers):
        return []
    messages: list[ChannelMessage] = []
    for i, header in enumerate(headers):
        is_last = i + 1 == len(headers)
        stop = len(text) if is_last else headers[i + 1].start()
        end = None
        if header[1] == "analysis" and not bare:
            end = _END.search(text, header.end(), stop)
        if end is not None:
            messages.append(ChannelMessage("analysis", header.end(), end.start(), True))
            if text[end.end() : stop].strip():
                messages.append(ChannelMessage("", end.end(), stop, not is_last))
            continue
        piece = text[header.end() : stop].rstrip()
        ended = piece.endswith(_ENDS) and not bare
        if ended:
            stop = header.end() + piece.rindex("<|")
        messages.append(ChannelMessage(header[1], header.end(), stop, ended or not is_last))
    return messages
