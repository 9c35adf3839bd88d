"""`reward_model.reward_manager=dapo` with its overlong buffer: a transform on the rule's score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.config.compat import key_table
from rmrl.config.compat.lists import number
from rmrl.errors import ConfigError

MANAGERS = ("naive", "batch", "dapo", "prime")
"""Ways to call rules in verl. Here rules always run in parallel worker processes, and the signature
of each determines how it is called."""


def manager_problems(section: Mapping[str, Any]) -> list[str]:
    """Return one sentence for a reward_manager that is not supported."""
    manager = section.get("reward_manager")
    if manager is None or manager in MANAGERS:
        return []
    return [
        f"reward_model.reward_manager={manager}: custom managers are not loaded; known:"
        f" {', '.join(MANAGERS)}; name a function with custom_reward_function.path=<file>"
    ]


def transform(section: Mapping[str, Any], *, response_tokens: int | None) -> dict[str, Any] | None:
    """Return the transform `overlong`'s entries, None where it is off. Raises ConfigError where a
    length is missing.

    `response_tokens`: data.max_response_length, max_resp_len's default.
    """
    manager = section.get("reward_manager")
    options = key_table.subsection(section, "reward_kwargs")
    buffer = key_table.subsection(options, "overlong_buffer_cfg")
    buffer = buffer or key_table.subsection(section, "overlong_buffer")
    if not buffer.get("enable") or manager not in ("dapo", None):
        return None
    longest = options.get("max_resp_len") or response_tokens
    if buffer.get("len") is None or longest is None:
        raise ConfigError(
            "reward_model.reward_kwargs.overlong_buffer_cfg: give its len and"
            " reward_model.reward_kwargs.max_resp_len, both in tokens"
        )
    penalty = number(
        "reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor",
        buffer.get("penalty_factor", 1.0),
    )
    return {
        "kind": "overlong",
        "max_length": int(longest),
        "buffer": int(buffer["len"]),
        "penalty": penalty,
    }
