"""Policies learn to write what judges obey. Their text is made inert before a judge reads it."""

from __future__ import annotations

import hashlib
import re
from typing import Protocol

_BREAK = "\u200b"


class HasSpecialTokens(Protocol):
    all_special_tokens: list[str]


def neutralise(text: str, tokenizer: HasSpecialTokens) -> str:
    """Break every special or chat-template token in `text` (a zero-width space after its first character), so it renders as plain letters."""
    tokens = {t for t in tokenizer.all_special_tokens if len(t) > 1} | set(_template_tokens(tokenizer))
    if not tokens:
        return text
    pattern = re.compile("|".join(re.escape(t) for t in sorted(tokens, key=len, reverse=True)))
    return pattern.sub(lambda match: match[0][0] + _BREAK + match[0][1:], text)


def _template_tokens(tokenizer: object) -> list[str]:
    added = getattr(tokenizer, "get_added_vocab", dict)()
    return [token for token in added if len(token) > 2]


def fence(text: str, *, salt: str = "") -> tuple[str, str]:
    """(marker, fenced text). The marker is derived from the text and `salt`, so the text cannot contain it except by breaking SHA-256."""
    marker = hashlib.sha256(f"{salt}\x00{text}".encode()).hexdigest()[:12]
    return marker, f"[begin {marker}]\n{text}\n[end {marker}]"
