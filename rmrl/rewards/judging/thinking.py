"""Thinking blocks: a verdict is read from what comes after them."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
_CLOSE = re.compile(r"^.*?</(think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)


def strip_thinking(text: str) -> tuple[str, bool]:
    """(text without thinking blocks, whether a block was left open).

    Templates that open the block in the prompt leave only the closing tag in the text: everything before it goes as well.
    """
    stripped = _CLOSE.sub("", _BLOCK.sub("", text)) if "</" in text else text
    opened = _OPEN.search(stripped)
    return (stripped[: opened.start()].strip(), True) if opened else (stripped.strip(), False)
