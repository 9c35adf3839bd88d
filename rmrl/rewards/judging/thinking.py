"""Thinking blocks: a verdict is read from what comes after them."""

from __future__ import annotations

import re

_TAG = r"(think|thinking|reasoning)"
_BLOCK = re.compile(rf"<{_TAG}>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(rf"<{_TAG}>", re.IGNORECASE)
_CLOSE = re.compile(rf"^.*</{_TAG}>", re.DOTALL | re.IGNORECASE)
_OPEN_AT_END = re.compile(rf"<{_TAG}>\s*$", re.IGNORECASE)


def strip_thinking(text: str, *, opened: bool = False) -> tuple[str, bool]:
    """(text without thinking blocks, whether a block was left open).

    `opened`: the prompt ended inside a block (see `opens_thinking`), so without a closing tag all of the text is thinking.
    A closing tag that nothing in the text opened ends such a block: everything up to the last one goes.
    """
    stripped = _CLOSE.sub("", _BLOCK.sub("", text)) if "</" in text else text
    if opened and not _CLOSE.search(text):
        return "", True
    open_tag = _OPEN.search(stripped)
    return (stripped[: open_tag.start()].strip(), True) if open_tag else (stripped.strip(), False)


def opens_thinking(prompt: str) -> bool:
    """Whether a rendered prompt leaves a thinking block open for the model to continue, as some chat templates do."""
    return _OPEN_AT_END.search(prompt) is not None
