"""Section `actor_rollout_ref.rollout`: how responses are sampled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.fields import (
    at_least,
    changeable,
    choice,
    fraction,
    not_negative,
    positive,
    share,
)


@dataclass(kw_only=True, slots=True)
class ValSamplingConfig:
    """Sampling during validation."""

    temperature: float = not_negative(0.0)
    """0: greedy."""
    top_p: float = fraction(1.0)
    """Nucleus. 1: off."""
    top_k: int = at_least(-1, least=-1)
    """-1: off."""
    n: int = positive(1)
    """Responses per prompt."""
    do_sample: bool = False
    """False: greedy at any temperature."""


@dataclass(kw_only=True, slots=True)
class VerifiersConfig:
    """A verifiers environment that plays the responses."""

    env: str | None = None
    """Taskset: an installed package, or a module in a folder of `path`."""
    args: dict[str, Any] = field(default_factory=dict)
    """Further entries of the environment's own configuration, e.g. {agent: {runtime: {type:
    subprocess}}}."""
    python: str | None = changeable(None)
    """Python in whose packages verifiers is. null: the one that runs rmrl."""
    path: list[str] = field(default_factory=list)
    """Folders with the environment's modules."""
    renderer: dict[str, Any] = field(default_factory=dict)
    """Renderer that writes prompts, e.g. {name: qwen3}. {}: the one that verifiers finds for the
    model, else the model's chat template, without tools."""
    turns: int | None = positive(None, may_change=True)
    """Most turns that the policy samples in a response. null: no limit."""
    on_limit: str = choice("missing", among=("missing", "score"))
    """Treatment for a response that a limit on turns or tokens ended: missing (no reward scores it,
    so it does not train) or score."""
    seconds: float = positive(600.0, may_change=True)
    """Longest time that a response may take."""
    at_once: int = positive(64, may_change=True)
    """Responses under way at once."""
    processes: int | None = positive(None, may_change=True)
    """Processes that play, each on one core. null: one for every 4 cores of this machine, at most
    16."""
    wait_share: float = share(1.0, may_change=True)
    """Share of a batch's responses that the run waits for."""
    straggler_s: float = not_negative(60.0, may_change=True)
    """Seconds that the other responses have then. Those still under way are abandoned."""


@dataclass(kw_only=True, slots=True)
class RolloutConfig:
    name: str = "vllm"
    """Rollout engine: vllm, sglang, hf (reference, slow), or module:name."""
    source: str = choice("prompts", among=("prompts", "verifiers"))
    """What plays a response: prompts (one turn for each prompt), or verifiers (an environment)."""
    verifiers: VerifiersConfig = field(default_factory=VerifiersConfig)
    pool: str | None = changeable(None)
    """Pool in trainer.resource_pools that samples responses. null: the policy's devices, in turn
    with training."""
    n: int = positive(1)
    """Responses per prompt. Group estimators need at least 2."""
    temperature: float = not_negative(1.0)
    """Sampling temperature. The temperature also divides the logits in training, so that sampling
    and training use the same distribution."""
    top_k: int = at_least(-1, least=-1)
    """-1: off."""
    top_p: float = fraction(1.0)
    """1: off."""
    do_sample: bool = True
    """False: greedy."""
    weight_transport: str = choice("auto", among=("auto", "file", "ipc", "nccl", "nccl_m2n"))
    """Transport for new weights to the engines: file (shared memory), ipc (CUDA IPC, engines on the
    training devices), nccl (needs rollout.pool), or nccl_m2n (the same, shards to shards). auto:
    ipc or nccl with vllm on CUDA, else file."""
    ignore_eos: bool = False
    """Continue past the end token."""
    seed: int = 0
    """Engine seed."""
    seed_per_sample: bool | None = changeable(None)
    """Give every sample its own seed, so that a sample does not depend on its neighbours. false:
    one seed for every call. null: own seeds where they cost nothing, so everywhere but with vLLM's
    first model runner on CUDA."""
    dtype: str = choice("bfloat16", among=("bfloat16", "float16", "float32"))
    """Compute type of the engine."""
    batch_invariant: bool = False
    """Compute every sample independently from the other samples in its batch: vllm on NVIDIA GPUs
    with compute capability 8.0 or higher (VLLM_BATCH_INVARIANT). Refused elsewhere."""
    gpu_memory_utilization: float | None = fraction(None, may_change=True)
    """Share of the GPU the engine may take while awake (CUDA). null: what the memory plan leaves,
    at most what a full batch uses."""
    kv_cache_bytes: int = positive(256 * 2**20, may_change=True)
    """KV cache on CPU, in bytes."""
    enforce_eager: bool = changeable(False)
    """Skip graph capture (always skipped on CPU)."""
    free_cache_engine: bool = changeable(True)
    """Put the engine to sleep while rewards are computed and the policy trains."""
    tensor_parallel_size: int = positive(1, may_change=True)
    """Devices per engine."""
    data_parallel_size: int = positive(1, may_change=True)
    """Engines on CPU. On CUDA there are n_gpus / tensor_parallel_size engines."""
    max_num_batched_tokens: int = positive(8192, may_change=True)
    """Largest number of tokens per engine step."""
    max_model_len: int | None = positive(None)
    """Prompt + response. null: data.max_prompt_length + data.max_response_length."""
    max_num_seqs: int | None = positive(None, may_change=True)
    """Largest number of sequences decoded together. null: 512 on CUDA, 256 on CPU."""
    enable_chunked_prefill: bool = True
    """Mix prefill and decode in one engine step."""
    enable_prefix_caching: bool = True
    """Prefill a prompt once for its whole group. Every weight update resets the cache."""
    log_prob_micro_batch_size_per_gpu: int | None = positive(None, may_change=True)
    """Responses per forward pass when old logprobs are computed. null: by tokens."""
    log_prob_max_token_len_per_gpu: int | None = positive(None, may_change=True)
    """Padded tokens per forward pass when old logprobs are computed. null: the actor's."""
    timeout_s: float = positive(1800.0, may_change=True)
    """Longest time in which an engine finishes no response."""
    engine_kwargs: dict[str, Any] = field(default_factory=dict)
    """{vllm: {...}, sglang: {...}}, passed to the engine unchanged."""
    val_kwargs: ValSamplingConfig = changeable(factory=ValSamplingConfig)
