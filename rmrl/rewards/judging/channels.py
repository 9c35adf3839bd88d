"""Messages of gpt-oss, which writes each into a channel: analysis, commentary or final."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = re.compile(
    r"(?:<\|start\|>assistant[^<\n]{0,80})?<\|channel\|>(analysis|commentary|final)"
    r"(?:(?!<\|message\|>).){0,120}<\|message\|>"
)
_END = re.compile(r"<\|(?:end|return|call|start)\|>")
_BARE_START = re.compile(r"\s*analysis(?![a-z\s:.,;!?'\u2019-])")
"""The channel's name without the special tokens around it; "analysis of" is prose."""
_BARE_HEADER = re.compile(
    r"(?:\A\s*|assistant(?: to=\S+?)?)(analysis|commentary|final)(?:\s*to=\S+\s*(?:json|code)?)?"
)


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    """Place of one message in a text, and whether it came to an end."""

    channel: str
    start: int
    stop: int
    ended: bool


def channel_messages(text: str) -> Iterator[ChannelMessage]:
    """Yield the messages of a text in order, those whose special tokens were left out included
    ("analysisSo ... assistantfinalIt is 4."); none for a text of another form."""
    headers = list(_HEADER.finditer(text))
    # Elsewhere the tokens are mentioned by a text of another form.
    if headers and not text[: headers[0].start()].strip():
        for header in headers:
            end = _END.search(text, header.end())
            stop = len(text) if end is None else end.start()
            yield ChannelMessage(header[1], header.end(), stop, end is not None)
    elif _BARE_START.match(text):
        headers = list(_BARE_HEADER.finditer(text))
        for header, following in zip(headers, [*headers[1:], None], strict=True):
            stop = len(text) if following is None else following.start()
            yield ChannelMessage(header[1], header.end(), stop, following is not None)
