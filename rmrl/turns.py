"""Responses with several turns: who wrote each token, and what it follows.

Tools and users write between the policy's turns. Their tokens are holes, which training does not
count. Where the next turn's context does not begin with all earlier tokens, because the template
drops the thinking or the harness compacts the history, another branch begins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTurn:
    """One message: the tokens `start` to `end` - 1."""

    start: int
    end: int
    role: str
    stop: str = ""
    """Why the policy stopped: stop, length or tool_calls. "" for other roles."""
    number: int | None = None
    """Place among the assistant turns that rewards read, from 0. None: they do not read this one,
    because somebody else wrote it, or the history was compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Tokens that follow each other in the model's context."""

    prompt_ids: tuple[int, ...]
    """Everything before the branch's first token, with tokens that an earlier branch trains."""
    length: int
    """How many response tokens the branch has."""
