"""Policies learn to write what judges obey. Their text is made inert before a judge reads it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Protocol

_BREAK = "\u200b"


class HasSpecialTokens(Protocol):
    all_special_tokens: list[str]


def neutralise(text: str, tokenizer: HasSpecialTokens) -> str:
    """`text` with every special or chat-template token broken by a zero-width space, so that it renders as plain letters."""
    return neutraliser(tokenizer)(text)


def neutraliser(tokenizer: HasSpecialTokens) -> Callable[[str], str]:
    """`neutralise` for many texts of one tokenizer: its tokens are collected once."""
    tokens = {t for t in tokenizer.all_special_tokens if len(t) > 1} | set(_template_tokens(tokenizer))
    if not tokens:
        return lambda text: text
    pattern = re.compile("|".join(re.escape(t) for t in sorted(tokens, key=len, reverse=True)))
    return lambda text: pattern.sub(lambda match: match[0][0] + _BREAK + match[0][1:], text)


def _template_tokens(tokenizer: object) -> list[str]:
    """Added tokens that mark something. Runs of spaces and plain words, which some vocabularies add as well, are ordinary text."""
    added = getattr(tokenizer, "get_added_vocab", dict)()
    return [token for token in added if len(token) > 2 and token.strip() and not token.strip().isalnum()]


def fence(text: str, *, salt: str = "") -> tuple[str, str]:
    """(marker, fenced text). The marker is derived from the text and `salt`, so the text cannot contain it except by breaking SHA-256."""
    marker = hashlib.sha256(f"{salt}\x00{text}".encode()).hexdigest()[:12]
    return marker, f"[begin {marker}]\n{text}\n[end {marker}]"
