"""Thinking blocks: a verdict is read from the text that follows them."""

from __future__ import annotations

import re
from bisect import bisect_left

from rmrl.thinking import NAMES, opens_thinking

__all__ = ["opens_thinking", "strip_thinking", "without_blocks"]

_OPENING = rf"(?:<{NAMES}>|\[THINK\]|◁think▷)"
_CLOSING = rf"(?:</{NAMES}>|\[/THINK\]|◁/think▷)"
TAGS = re.compile(f"({_OPENING}|{_CLOSING})", re.IGNORECASE)
_OPEN = re.compile(_OPENING, re.IGNORECASE)
_CLOSING_TAG = re.compile(_CLOSING, re.IGNORECASE)
_CLOSE = re.compile(rf"^.*{_CLOSING}", re.DOTALL | re.IGNORECASE)

# The channels of gpt-oss, with and without their special tokens: "analysis ... assistantfinal ...".
_ANALYSIS = re.compile(r"^\s*(?:<\|channel\|>)?analysis(?:<\|message\|>)?", re.IGNORECASE)
_FINAL = re.compile(r"^.*(?:assistantfinal|<\|channel\|>final<\|message\|>)", re.DOTALL)


def strip_thinking(text: str, *, opened: bool = False) -> tuple[str, bool]:
    """(text without thinking blocks, whether a block was left open).

    `opened`: the prompt ended inside a block (see `opens_thinking`), so without a closing tag all
    of the text is thinking. A closing tag that nothing in the text opened ends such a block:
    everything up to the last one goes.
    """
    if _ANALYSIS.match(text) and _FINAL.match(text):
        text = _FINAL.sub("", text)
    closed = _CLOSE.search(text) is not None
    if opened and not closed:
        return "", True
    if closed:
        text = _CLOSE.sub("", without_blocks(text))
    open_tag = _OPEN.search(text)
    if open_tag is None:
        return text.strip(), False
    return text[: open_tag.start()].strip(), True


def without_blocks(text: str) -> str:
    """`text` without the spans from an opening tag to the next closing one of its name; time is
    linear."""
    starts: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    for closing in _CLOSING_TAG.finditer(text):
        name = closing[0].replace("/", "").lower()
        starts.setdefault(name, []).append(closing.start())
        ends.setdefault(name, []).append(closing.end())
    parts: list[str] = []
    position = 0
    for opening in _OPEN.finditer(text):
        name = opening[0].lower()
        place = bisect_left(starts.get(name, []), opening.end())
        if opening.start() < position or place == len(starts.get(name, [])):
            continue
        parts.append(text[position : opening.start()])
        position = ends[name][place]
    return "".join([*parts, text[position:]])
