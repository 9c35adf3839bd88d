"""`reward_model.use_bge`: how near the reply is to the reference, as the similarity server of
VeRL-with-RMs had it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmrl.config.older.lists import number

NAME = "bge"
FUNCTION = "bge_similarity"
"""File of reward_functions/: the `Response` of reply and reference, the server's curve, and 0.7 *
similarity + 0.3."""
CHECKPOINT = "BAAI/bge-large-zh-v1.5"
"""The embedding model of that server."""
DEFAULT_WEIGHT = 0.5


def asked(section: Mapping[str, Any]) -> bool:
    """Off unless typed: it needs an embedding model, which no entry of the section names."""
    return bool(section.get("use_bge"))


def spec() -> dict[str, Any]:
    """The entries of `reward.specs.bge`."""
    return {"kind": "similarity", "path": CHECKPOINT, "function": FUNCTION}


def weight(section: Mapping[str, Any]) -> float:
    """bge_weight."""
    return number("reward_model.bge_weight", section.get("bge_weight", DEFAULT_WEIGHT))
