"""Transport of new weights to the rollout engines: what rollout.weight_transport=auto means."""

from __future__ import annotations

import logging
import os

from rmrl.cluster.memory_plan import MemoryPlan, gib
from rmrl.config.schema import Config
from rmrl.inference.engine_facts import rollout_facts
from rmrl.inference.gpu_reserve import ENGINE_PROCESS_BYTES
from rmrl.models.checkpoint_inspect import tensor_headers, weight_bytes

_log = logging.getLogger(__name__)

_BUFFER_BYTES = 2**30
"""Least size of the buffer that tensors travel in."""
_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def chosen_transport(config: Config, plan: MemoryPlan, *, device: str) -> str:
    """Return the configured transport, or for "auto" the most direct one that works: file, ipc or
    nccl.

    Engines on the training devices: ipc, where both sides' weights fit beside each other. Engines
    in a pool: nccl. Else, on CPU and for other engines than vLLM: file.
    """
    rollout = config.actor_rollout_ref.rollout
    if rollout.weight_transport != "auto":
        return rollout.weight_transport
    facts = rollout_facts(rollout.name)
    direct = "ipc" if rollout.pool is None else "nccl"
    # A user's own entry takes precedence over the one that a transport needs.
    own = "weight_transfer_config" in (rollout.engine_kwargs.get(rollout.name) or {})
    if device != "cuda" or own or direct not in facts.weight_transports:
        return "file"
    if facts.transport_problem(direct):
        return "file"
    if direct == "nccl":
        return direct
    reason = _against_ipc(config, plan)
    if reason:
        _log.info(f"new weights travel through files, not CUDA IPC: {reason}")
        return "file"
    return direct


def _against_ipc(config: Config, plan: MemoryPlan) -> str:
    """Return the reason why processes cannot share a device's memory, or ""."""
    if any("expandable_segments:True" in os.environ.get(name, "") for name in _ALLOCATOR_SETTINGS):
        return "expandable segments cannot be shared between processes everywhere"
    coming = transfer_bytes(config)
    # Rewards' claims have a place. Some reward may be named "rollout".
    policy = [claim for claim in plan.claims if claim.place is None]
    training = next(claim for claim in policy if claim.who == "training")
    for device in training.devices:
        needed = coming + training.held_bytes
        for claim in plan.claims:
            counted = claim in policy and claim.who in ("training", "rollout")
            if device in claim.devices and not counted:
                needed += claim.away_bytes
        if needed > plan.budgets[device]:
            return (
                f"training and the engine's weights need {gib(needed)} of {device} at the same"
                f" time, and it has {gib(plan.budgets[device])}"
            )
    return ""


def transfer_bytes(config: Config) -> int:
    """Return the bytes of a device that an engine and the buffer hold while weights arrive by IPC:
    its process, its part of the weights, and the buffer twice (tensors are packed into it while the
    one before is read)."""
    part = config.actor_rollout_ref
    path = str(part.model.path)
    weights = weight_bytes(path, part.rollout.dtype)
    largest = max((header.count for header in tensor_headers(path)), default=0)
    itemsize = 4 if part.rollout.dtype == "float32" else 2
    buffer = max(_BUFFER_BYTES, largest * itemsize)
    process = ENGINE_PROCESS_BYTES["cuda"]
    return process + weights // part.rollout.tensor_parallel_size + 2 * buffer
