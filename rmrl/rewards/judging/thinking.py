"""Thinking blocks: a verdict is read from what comes after them."""

from __future__ import annotations

import re
from bisect import bisect_left

_NAMES = r"(?:think|thinking|thought|thoughts|reasoning|seed:think)"
_OPENING = rf"(?:<{_NAMES}>|\[THINK\]|◁think▷)"
_CLOSING = rf"(?:</{_NAMES}>|\[/THINK\]|◁/think▷)"
_OPEN = re.compile(_OPENING, re.IGNORECASE)
_CLOSING_TAG = re.compile(_CLOSING, re.IGNORECASE)
_CLOSE = re.compile(rf"^.*{_CLOSING}", re.DOTALL | re.IGNORECASE)
_OPEN_AT_END = re.compile(rf"{_OPENING}\s*$", re.IGNORECASE)

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
    stripped = _CLOSE.sub("", _without_blocks(text)) if closed else text
    open_tag = _OPEN.search(stripped)
    return (stripped[: open_tag.start()].strip(), True) if open_tag else (stripped.strip(), False)


def _without_blocks(text: str) -> str:
    """`text` without what stands between an opening tag and the next closing one of its name; time
    is linear."""
    closings: dict[str, list[re.Match[str]]] = {}
    for closing in _CLOSING_TAG.finditer(text):
        closings.setdefault(closing[0].replace("/", "").lower(), []).append(closing)
    starts = {name: [closing.start() for closing in tags] for name, tags in closings.items()}
    parts: list[str] = []
    at = 0
    for opening in _OPEN.finditer(text):
        name = opening[0].lower()
        place = bisect_left(starts.get(name, []), opening.end())
        if opening.start() < at or place == len(starts.get(name, [])):
            continue
        parts.append(text[at : opening.start()])
        at = closings[name][place].end()
    return "".join([*parts, text[at:]])


def opens_thinking(prompt: str) -> bool:
    """Whether a rendered prompt leaves a thinking block open for the model to continue, as some
    chat templates do."""
    return _OPEN_AT_END.search(prompt) is not None
