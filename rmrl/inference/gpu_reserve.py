"""How much GPU memory an engine has use for: from the bytes with which it starts up to where a full
batch has room for all its keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.models.checkpoint_inspect import kv_bytes, read_config, vocabulary_size

ENGINE_PROCESS_BYTES = {"cpu": 900 * 2**20, "cuda": 600 * 2**20}
"""An engine's process without a model: torch and vLLM on CPU (measured: 0.9 GiB resident), context
and workspaces on CUDA."""
_BESIDE_BYTES = 2 * 2**30
"""CUDA graphs, and what vLLM's profile finds beyond this estimate."""
STAYS_WITH = 32
LARGEST_SHARE = 0.9
"""For one engine: vLLM's own default up to 0.24."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Bytes on each device."""

    start: int
    """Without them the engine does not start."""
    useful: int
    """More than this stays empty."""


def reserve(
    path: str | Path,
    *,
    held_bytes: int,
    width: int,
    context: int,
    sequences: int,
    batched_tokens: int,
    gpu_bytes: int,
    generates: bool = True,
    chunks: bool = False,
    stays: bool = False,
) -> Reserve:
    """Return what an engine has use for.

    held_bytes: weights and adapters, which `width` devices share. context: the longest sequence, in
    tokens. sequences, batched_tokens: the engine's limits. gpu_bytes: one GPU's memory, which
    LARGEST_SHARE limits (0: no limit). generates: keys and values stay until a sequence has ended.
    Otherwise they stay for one step. chunks: a prompt may be read in several steps. stays:
    the engine is never put away, and so others must leave it room for STAYS_WITH sequences.
    """
    token_bytes = -(-kv_bytes(path) // width)
    step_tokens = batched_tokens if chunks else max(batched_tokens, context)
    fixed = -(-held_bytes // width) + ENGINE_PROCESS_BYTES["cuda"] + _BESIDE_BYTES
    fixed += step_tokens * _activation_bytes(path)
    cached = 2 * step_tokens
    if generates:
        fixed += sequences * vocabulary_size(path) * _LOGIT_BYTES
        cached = sequences * context
    least = min(sequences, STAYS_WITH) if stays else 1
    start = fixed + least * context * token_bytes
    useful = max(start, fixed + cached * token_bytes)
    if gpu_bytes:
        limit = int(LARGEST_SHARE * gpu_bytes)
        start, useful = min(start, limit), min(useful, limit)
    return Reserve(start, useful)


_LOGIT_BYTES = 8
"""A logit in float32, and its sorted or normalized copy."""


def _activation_bytes(path: str | Path) -> int:
    """One token's activations in a layer, in 16 bits: inputs, attention, feed-forward. Layers reuse
    the memory."""
    config: Mapping[str, Any] = read_config(path)
    config = config.get("text_config") or config
    hidden = int(config.get("hidden_size") or 0)
    return 2 * (6 * hidden + 3 * int(config.get("intermediate_size") or 4 * hidden))
