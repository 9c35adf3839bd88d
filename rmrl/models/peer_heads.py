"""Reward models as other trainers save them: a linear head beside a language model, under an
architecture that no engine loads as a classifier. Only headers are read.

Sources: OpenRLHF 0.11.2, openrlhf/models/model.py (`RewardModel`, the head is called
`value_head_prefix`); TRL's AutoModelForCausalLMWithValueHead and LLaMA-Factory
(`v_head.summary.weight`, the latter in value_head.safetensors); ms-swift before its #9704 (`score`
under a *ForCausalLM).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmrl.models.checkpoint_inspect import (
    OPENRLHF,
    WRITES_TEXT,
    TensorHeader,
    architecture,
    file_headers,
    local_checkpoint,
    read_config,
    tensor_headers,
)

_HEADS = ("score", "value_head", "v_head.summary", "v_head", "reward_head")
_BESIDE = "value_head.safetensors"


@dataclass(frozen=True, slots=True)
class PeerHead:
    """The head of such a checkpoint."""

    weight: TensorHeader
    """[1, hidden size]"""
    bias: TensorHeader | None
    """[1], or None where the head has none."""
    mean: float
    std: float
    """OpenRLHF's `normalize_reward`: the reward is (head - mean) / std. Without it 0 and 1."""


def peer_head(path: str | Path) -> PeerHead | None:
    """Return the head of a reward model that needs `rmrl export reward_model=...` first, None for
    any other checkpoint."""
    name = architecture(path)
    if name != OPENRLHF and not name.endswith(WRITES_TEXT):
        return None
    config = read_config(path)
    beside = local_checkpoint(path) / _BESIDE
    more = file_headers(beside) if beside.is_file() else ()
    headers = {header.name: header for header in (*more, *tensor_headers(path))}
    mean, std = 0.0, 1.0
    if config.get("normalize_reward"):
        mean, std = float(config.get("mean", mean)), float(config.get("std", std))
    for module in (str(config.get("value_head_prefix", _HEADS[0])), *_HEADS):
        weight = headers.get(f"{module}.weight")
        if weight is not None and len(weight.shape) == 2 and weight.shape[0] == 1:
            return PeerHead(weight, headers.get(f"{module}.bias"), mean, std)
    return None


def peer_advice(path: str | Path) -> str:
    """Return what to type for a reward model in a peer's form, "" for any other checkpoint."""
    head = peer_head(path)
    if head is None:
        return ""
    return (
        f"'{path}' is a {architecture(path)} with the head {head.weight.name}, which engines do not"
        f" load as a classifier; write it as one with rmrl export reward_model={path}"
        " out=<folder>, and give that folder"
    )
