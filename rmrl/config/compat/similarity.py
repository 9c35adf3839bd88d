"""`reward_model.use_bge`: similarity of the reply to the reference, by the formula of the
similarity server of VeRL-with-RMs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.config.compat.lists import number

NAME = "bge"
FUNCTION = "bge_similarity"
"""File of reward_functions/: it compares the `Response` of reply and reference, applies the
server's curve, and returns 0.7 * similarity + 0.3."""
CHECKPOINT = "BAAI/bge-large-zh-v1.5"
"""Embedding model of that server."""
DEFAULT_WEIGHT = 0.5


def is_enabled(section: Mapping[str, Any]) -> bool:
    """Return whether the similarity counts. Off by default, because it needs an embedding model,
    which no entry of the section names."""
    return bool(section.get("use_bge"))


def spec() -> dict[str, Any]:
    """Return the entries of `reward.specs.bge`."""
    return {"kind": "similarity", "path": CHECKPOINT, "function": FUNCTION}


def weight(section: Mapping[str, Any]) -> float:
    """Return bge_weight. Raises ConfigError for a value that is not a number."""
    return number("reward_model.bge_weight", section.get("bge_weight", DEFAULT_WEIGHT))
