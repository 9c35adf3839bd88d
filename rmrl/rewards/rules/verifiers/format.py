"""Tests of a response's layout: plain string operations, linear in the text."""

from __future__ import annotations

from collections.abc import Sequence


def in_tags(response: str, tags: Sequence[str] = ("think", "answer")) -> float:
    """1.0 if the response is exactly `<a>...</a><b>...</b>`, each tag once, in order, white space
    only between them; else 0.0."""
    rest = response
    for tag in tags:
        opening = f"<{tag}>"
        closing = f"</{tag}>"
        if response.count(opening) != 1 or response.count(closing) != 1:
            return 0.0
        before, opened, rest = rest.partition(opening)
        _, closed, rest = rest.partition(closing)
        if before.strip() or not opened or not closed:
            return 0.0
    return float(not rest.strip())


def has_boxed(response: str) -> float:
    """1.0 if the response's last \\boxed{...} is closed and not empty, else 0.0."""
    return float(bool((last_boxed(response) or "").strip()))


def last_boxed(response: str) -> str | None:
    """Return the content of the last \\boxed{...}, braces balanced; None where there is none or it
    is not closed."""
    _, mark, tail = response.rpartition("\\boxed{")
    if not mark:
        return None
    depth = 1
    for position, character in enumerate(tail):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return tail[:position]
    return None
