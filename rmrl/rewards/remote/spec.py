"""Description of a remote server and of the limits on requests to it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPSpec:
    """One server. Rewards with equal `key` share its connections and its limits."""

    url: str
    """Wires openai, decisions and systemone: the base up to and including /v1. Reward wires: the
    address that is posted to."""
    wire: str
    """Entry of the table WIRES: openai, decisions, systemone, openrlhf, slime or nemo_gym."""
    model: str = ""
    """openai, decisions, systemone: the model's name. nemo_gym: the policy's in the posts."""
    api_key_env: str = ""
    """Name of the environment variable that holds the key. The key itself is never configured,
    logged or cached."""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0
    """Deadline of one request from its first try to its last, retries and waiting for the rate
    limit included."""
    max_concurrency: int = 32
    """Requests in flight at once."""
    requests_per_minute: float | None = None
    """null: no limit."""
    max_tries: int = 5
    """Tries of one request. Only 429, 5xx and broken connections are retried."""
    batch_size: int = 16
    """openrlhf: responses per post."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Entries put into every post over the default ones, e.g. {chat_template_kwargs: {...}}; null
    removes an entry."""

    @property
    def key(self) -> Hashable:
        """Equal for specs that may share connections and limits."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {"headers": dict(self.headers), "extra_body": dict(self.extra_body)}
        return json.dumps(values, sort_keys=True, default=repr)


@dataclass(frozen=True, slots=True)
class RewardRequest:
    """One response for a reward wire."""

    prompt: str
    response: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class RowRequest(RewardRequest):
    """One response with its row, for a wire that states `reads_rows`."""

    messages: tuple[tuple[str, str], ...] = ()
    """(role, text) of the prompt's turns, as the policy read them."""
    fields: str = "{}"
    """The row's own entries of the post: a JSON object, as text so that equal requests are equal
    keys."""
    finish_reason: str = "stop"
    """"length" where the response broke off at the token limit."""


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """Questions with fixed answers about one text, for a wire in DECISION_WIRES."""

    text: str
    questions: tuple[tuple[str, tuple[str, ...]], ...]
    """(question, its answers in order)."""
