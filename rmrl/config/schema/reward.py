"""Sections `reward` (rewards, their weights, what to do about missing verdicts) and
`ray_kwargs`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.fields import changeable, choice, fraction, not_negative, positive


@dataclass(kw_only=True, slots=True)
class RewardEngineConfig:
    """Defaults for the engines that run model rewards. A reward's own `engine:` entries replace
    them."""

    name: str = "vllm"
    """vllm, sglang, sentence_transformers, hf (reference implementation), or module:name."""
    dtype: str = "auto"
    """Compute type: auto, float32, bfloat16 or float16. auto: the type in which the checkpoint
    stores most bytes. On CPU, auto is float32 for float16 checkpoints, for scoring and embedding
    models with at most 1e9 parameters, and for all models of that size where the processor has no
    instructions for bfloat16."""
    batch_invariant: bool = False
    """Compute every row independently from the other rows in its batch: vllm on NVIDIA GPUs with
    compute capability 8.0 or higher (VLLM_BATCH_INVARIANT), hf and sentence_transformers one row at
    a time. Refused elsewhere."""
    max_model_len: int | None = positive(None)
    """Tokens that the reward model may read and write. null: the checkpoint's limit, at most
    4096."""
    max_num_seqs: int | None = positive(None, may_change=True)
    """Requests in flight in one engine. null: 256 on CUDA, 128 on CPU."""
    max_num_batched_tokens: int = positive(8192, may_change=True)
    """Largest number of tokens per engine step."""
    tensor_parallel_size: int = positive(1, may_change=True)
    """Devices per engine, independent of the policy's."""
    replicas: int | None = positive(None, may_change=True)
    """Processes that hold the same model and share its requests. On CUDA each process needs its own
    tensor_parallel_size devices. null: on CUDA as many processes as the engine's place (`pool`,
    else the policy's devices) has room for, one for a resident engine beside others, on CPU one."""
    pool: str = changeable("")
    """Entry in trainer.resource_pools with the engine's devices. empty: the engine shares the
    policy's devices."""
    gpu_memory_utilization: float | None = fraction(None, may_change=True)
    """GPU share while the engine is awake (CUDA). null: what the memory plan leaves, at most what a
    full batch uses."""
    kv_cache_bytes: int = positive(256 * 2**20, may_change=True)
    """KV cache on CPU, in bytes."""
    threads: int | None = positive(None, may_change=True)
    """CPU threads. null: all cores when engines take turns."""
    residency: str = choice("auto", among=("auto", "on_demand", "resident"), may_change=True)
    """auto (awake until another engine needs the memory), on_demand (put away after every use) or
    resident (always awake)."""
    put_away: str = choice("auto", among=("auto", "sleep1", "sleep2", "unload"), may_change=True)
    """Way to put an engine away: sleep1 (weights to host memory), sleep2 (weights dropped), unload
    (process ends), auto."""
    load_timeout_s: float = positive(900.0, may_change=True)
    """Deadline for loading, in seconds."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Passed to the engine unchanged."""


@dataclass(kw_only=True, slots=True)
class RewardCacheConfig:
    path: str | None = None
    """SQLite file that stores verdicts over steps and runs. null: no cache."""
    sampled: bool = False
    """Store sampled verdicts (temperature above 0) as well. Such a verdict is drawn once and then
    repeated."""
    max_gb: float = positive(4.0)
    """Least recently used verdicts are dropped above this size."""


@dataclass(kw_only=True, slots=True)
class RewardMonitorConfig:
    enable: bool = True
    """Print a line where the scores of the last steps are worth reading."""
    window: int = positive(20)
    """Number of recent steps to examine."""
    divergence: float = -0.3
    """Correlation of two components below which they count as contradictory."""
    length: float = 0.6
    """Absolute correlation with the response's length from which a hint is printed."""
    unparseable: float = 0.1
    """Share of unreadable verdicts from which a hint is printed."""
    repeated: float = 0.5
    """Share of identical judge texts in a step from which a hint is printed."""


@dataclass(kw_only=True, slots=True)
class RewardConfig:
    models: list[str] = field(default_factory=list)
    """Names from `reward.specs`, files in `functions_dir`, path/to/file.py (or file.py:function),
    package.module:function, or checkpoints."""
    weights: list[float] | None = None
    """One per model. null: 1 each."""
    weight_schedules: dict[str, Any] = field(default_factory=dict)
    """<name>: [[step, weight], ...]: straight lines between the points, constant before the first
    and after the last."""
    by_source: dict[str, Any] = field(default_factory=dict)
    """<data_source>: {models: [...], weights: [...]}. Rows from that source have these rewards
    instead of `models`."""
    specs: dict[str, Any] = field(default_factory=dict)
    """<name>: {kind, path, function, sampling, engine, on_missing, overlong, transform, gate, ...}.
    docs/rewards.md explains the entries."""
    functions_dir: Any = None
    """Folder or folders with drop-in files. null: reward_functions/ here, then the shipped
    files."""
    combine: str = "weighted_sum"
    """weighted_sum, fold, product, min, max, soft_min, lexicographic or gate."""
    combine_ops: list[str] | None = None
    """fold: add or mul for each model, in order."""
    soft_min_beta: float = not_negative(1.0)
    """soft_min: 0 is the mean, large is the minimum."""
    lexicographic_tolerance: float = not_negative(0.0)
    """lexicographic: scores that differ by no more than this are tied, and the next component
    decides."""
    gates: list[str] = field(default_factory=list)
    """gate: components that must pass for the others to count."""
    gate_above: float = 0.0
    """A gate passes where its score is greater than this."""
    transforms: dict[str, Any] = field(default_factory=dict)
    """<name>: {kind: scale, ...} or a list of transforms, as in reward.specs.<name>.transform."""
    on_missing: Any = "mask"
    """Treatment for a missing verdict: mask, renormalize, fail, or {impute: value}. A spec can
    override it."""
    max_missing: float = not_negative(0.2, may_change=True)
    """Largest share of missing verdicts per step and component. A run with more stops with exit
    code 3. Scoring checks the whole file at its end."""
    max_missing_by_cause: dict[str, float] = changeable(factory=dict)
    """Separate budgets for infrastructure (timeout, provider_error, worker_lost, cancelled), data
    (unparseable, ...) and user (user_error)."""
    timeout_s: float = positive(600.0, may_change=True)
    """Longest time in which an engine finishes none of a component's requests."""
    rule_timeout_s: float = positive(10.0, may_change=True)
    """Deadline for one rule on one response, in seconds of the worker's own time. Computing and
    waiting count. A machine pause or a wait for a processor does not count."""
    rule_workers: int | None = changeable(None)
    """Processes for rules. null: one per core, at most 8."""
    engine: RewardEngineConfig = field(default_factory=RewardEngineConfig)
    cache: RewardCacheConfig = changeable(factory=RewardCacheConfig)
    monitor: RewardMonitorConfig = changeable(factory=RewardMonitorConfig)
    audit: dict[str, Any] = changeable(factory=dict)
    """Record that `rmrl audit` writes: date, verdicts and digests. They are compared with the
    rewards at each start. {}: not audited."""


@dataclass(kw_only=True, slots=True)
class ClusterConfig:
    ray_init: dict[str, Any] = field(default_factory=dict)
    """Passed to ray.init, e.g. {num_cpus: 16}."""
