"""All checks, those that tell the most first: what has changed since the last run on a GPU, then
whole jobs, then what has long been the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.gpu_check import (
    driver,
    jobs,
    lengths,
    megatron,
    planned,
    sampling,
    scoring,
    shared_gpu,
    training,
    wide,
)
from benchmarks.gpu_check.rig import Numbers, Rig

_ORDER: tuple[Callable[[Rig], Numbers], ...] = (
    scoring.vllm_answers,
    sampling.vllm_float32_head,
    wide.wide_head,
    wide.update_memory,
    planned.planned_update,
    lengths.packing_lengths,
    lengths.shared_prompts,
    wide.offload_large,
    wide.export_large,
    wide.ipc_large,
    driver.driver_leaves,
    driver.nvml_memory,
    megatron.megatron_step,
    megatron.megatron_packing,
    jobs.job_steps,
    shared_gpu.vllm_graphs_sleep,
    shared_gpu.vllm_turns,
    shared_gpu.vllm_decode,
    sampling.vllm_publish,
    jobs.killed_rollout,
    jobs.killed_judge,
    shared_gpu.vllm_graphs_kept_sleep,
    sampling.vllm_rollout,
    sampling.vllm_sleep,
    scoring.vllm_invariant_judge,
    scoring.vllm_invariant_scalar,
    training.fsdp2_step,
    training.logprobs,
    training.fsdp1_equals_fsdp2,
    training.gradient_checkpointing,
    training.packing,
    training.offload,
    training.offload_policy,
    training.checkpoint,
    training.lora,
    training.critic,
    megatron.megatron_offload,
    megatron.megatron_checkpoint,
    sampling.hf_rollout,
    sampling.hf_publish,
)
CHECKS: Mapping[str, Callable[[Rig], Numbers]] = {check.__name__: check for check in _ORDER}
DEADLINES: Mapping[str, float] = {
    **dict.fromkeys(CHECKS, 180.0),
    "planned_update": 300.0,
    **dict.fromkeys(("job_steps", "killed_rollout", "killed_judge"), jobs.LIMIT_S + 60.0),
}
"""Seconds of each check. A job has less time than its check, so that its own words are reported."""
