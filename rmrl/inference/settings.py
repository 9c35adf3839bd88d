"""Settings that rollout engines and reward engines share. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Device = Literal["cpu", "cuda"]
ROLLOUT_SEQUENCES: Mapping[Device, int] = {"cpu": 256, "cuda": 512}
"""What rollout.max_num_seqs is where it is null. A GPU decodes 512 sequences in little more time
than 256, as long as it reads the weights."""
REWARD_SEQUENCES: Mapping[Device, int] = {"cpu": 128, "cuda": 256}
"""The same for reward engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One engine's model, size and place. The configuration schema holds the defaults."""

    path: str
    """Checkpoint folder or hub id."""
    device: Device
    threads: int
    """CPU threads."""
    dtype: str
    """Type to compute in: float32, bfloat16 or float16."""
    max_model_len: int | None
    """Tokens in one sequence, prompt and response. None: the checkpoint's limit."""
    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel_size: int
    gpu_memory_utilization: float | None
    """GPU share while the engine is awake (CUDA). None: the memory plan chooses it."""
    kv_cache_bytes: int
    """KV cache on CPU, in bytes."""
    trust_remote_code: bool = False
    seed: int = 0
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """The user's engine arguments, passed on unchanged."""
