"""Section `reward`: which rewards, their weights, how missing verdicts count; and `ray_kwargs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True, slots=True)
class RewardEngineConfig:
    """Defaults of the engines that run model rewards; a reward's own `engine:` entries replace them."""

    name: str = "vllm"
    """vllm, hf (reference implementation) or fake (tests)."""
    dtype: str = "bfloat16"
    """Compute type."""
    max_model_len: int | None = None
    """Tokens the reward model may read and write; null: what its checkpoint allows, at most 4096."""
    max_num_seqs: int = 128
    """Requests in flight in one engine."""
    max_num_batched_tokens: int = 8192
    """Tokens per engine step, at most."""
    tensor_parallel_size: int = 1
    """Devices per engine, independent of the policy's."""
    gpu_memory_utilization: float = 0.5
    """Share of the GPU while awake (CUDA)."""
    kv_cache_bytes: int = 256 * 2**20
    """KV cache on CPU; bytes."""
    threads: int | None = None
    """CPU threads; null: all cores when engines take turns."""
    residency: str = "on_demand"
    """on_demand (put away after use) or resident (kept awake)."""
    put_away: str = "auto"
    """How on_demand puts an engine away: sleep1 (weights to host memory), sleep2 (weights dropped), unload (process ends), auto."""
    load_timeout_s: float = 900.0
    """Deadline of loading."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Passed to the engine as they are."""


@dataclass(kw_only=True, slots=True)
class RewardConfig:
    models: list[str] = field(default_factory=list)
    """Names: of `reward.specs`, files of `functions_dir`, package.module:function, or checkpoints."""
    weights: list[float] | None = None
    """One per model; null: 1 each."""
    specs: dict[str, Any] = field(default_factory=dict)
    """<name>: {kind, path, function, sampling, engine, on_missing, combine, ...}; see docs/rewards.md."""
    functions_dir: Any = None
    """Folder or folders of drop-in files; null: reward_functions/ here, then the shipped ones."""
    combine: str = "weighted_sum"
    """weighted_sum or fold."""
    combine_ops: list[str] | None = None
    """fold: add or mul for each model, in order."""
    on_missing: Any = "mask"
    """What a missing verdict does: mask, renormalize, fail, or {impute: value}; a spec may say otherwise."""
    max_missing: float = 0.2
    """Largest share of missing verdicts per step and component before the run stops with exit code 3."""
    timeout_s: float = 600.0
    """Deadline of one component on one step's responses."""
    rule_timeout_s: float = 10.0
    """Deadline of one rule on one response."""
    rule_workers: int | None = None
    """Processes for rules; null: cores, at most 8."""
    engine: RewardEngineConfig = field(default_factory=RewardEngineConfig)


@dataclass(kw_only=True, slots=True)
class ClusterConfig:
    ray_init: dict[str, Any] = field(default_factory=dict)
    """Passed to ray.init, e.g. {num_cpus: 16}."""
