"""Memory of every model and engine of a training run on each device, estimated from checkpoint
headers before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmrl.assemble.memory import engine_claims, gpu, host, plan_of
from rmrl.cluster.memory_plan import MEMORY, PHASES, Claim, MemoryPlan
from rmrl.cluster.pools import device_count
from rmrl.config.schema import Config, CriticConfig, ModelConfig, TrainedConfig
from rmrl.inference.engine_facts import rollout_facts
from rmrl.inference.gpu_reserve import ENGINE_PROCESS_BYTES, Reserve, reserve
from rmrl.inference.settings import ROLLOUT_SEQUENCES
from rmrl.models.checkpoint_inspect import weight_bytes
from rmrl.models.slice_sizes import LARGEST_SLICE_ELEMENTS, SLICE_ELEMENTS, elements_within
from rmrl.rewards.residency import EnginePlan
from rmrl.rewards.residency.sizes import BATCH_BYTES
from rmrl.trainer.train_memory import (
    activation_bytes,
    frozen_bytes,
    layout,
    lives_in_host_memory,
    offloads_state,
    state,
    stays_bytes,
    waits_bytes,
)

ROLLOUT = "rollout"
"""The rollout engines' claim."""
TRAIN_PROCESS_BYTES = {"cpu": 600 * 2**20, "cuda": 600 * 2**20}
"""A training process without its tensors: torch on CPU, context and cuBLAS on CUDA."""
NCCL_BYTES = 1400 * 2**20
"""Channels and buffers of NCCL in a process of several on CUDA. An estimate: not measured yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Models beside the policy."""

    reference: bool = False
    critic: CriticConfig | None = None


def memory_plan(
    config: Config,
    engines: Sequence[EnginePlan],
    *,
    device: str,
    budget_bytes: int,
    extras: Extras,
    host_bytes: int | None = None,
    gpu_bytes: int = 0,
) -> MemoryPlan:
    """Return the plan of a training run. `budget_bytes`: of each GPU, or of the machine;
    `host_bytes`: host memory of a machine with GPUs; `gpu_bytes`: memory of one GPU."""
    policy = policy_claims(config, device=device, extras=extras, gpu_bytes=gpu_bytes)
    return plan_of([*policy, *engine_claims(engines)], budget_bytes, host_bytes)


# --- the policy


def policy_claims(
    config: Config, *, device: str, extras: Extras, gpu_bytes: int = 0
) -> list[Claim]:
    """Return the claims of training and rollout, on their devices and in host memory. `gpu_bytes`:
    memory of one GPU."""
    claims = [_training(config, device, extras.reference, gpu_bytes)]
    critic = extras.critic
    if critic is not None:
        held = _held(config, critic.model, critic, device=device, pool=critic.pool)
        if critic.pool is None:
            # It shares the policy's processes.
            held -= _processes_bytes(device_count(config.trainer, None), device)
        claims.append(
            _claim(
                config,
                "critic",
                critic.model,
                critic,
                held=held,
                device=device,
                gpu_bytes=gpu_bytes,
                pool=critic.pool,
            )
        )
    claims.append(_rollout(config, device, gpu_bytes))
    if device == "cuda":
        claims += _policy_host(config, extras)
    return claims


def _devices(config: Config, pool: str | None, device: str) -> tuple[str, ...]:
    """Return a pool's devices, or the policy's own."""
    if device == "cpu":
        return (MEMORY,)
    return tuple(gpu(pool or "", number) for number in range(device_count(config.trainer, pool)))


def _processes_bytes(world: int, device: str) -> int:
    """Return the bytes of a training process without its tensors; on CPU of all processes."""
    if device == "cpu":
        return world * TRAIN_PROCESS_BYTES[device]
    return TRAIN_PROCESS_BYTES[device] + (NCCL_BYTES if world > 1 else 0)


def _training(config: Config, device: str, with_reference: bool, gpu_bytes: int = 0) -> Claim:
    """Weights, gradients and optimizer state; the activations of one micro-batch; the reference's
    weights."""
    part = config.actor_rollout_ref
    held = _held(config, part.model, part.actor, device=device, pool=None)
    frozen = 0
    if with_reference:
        world = device_count(config.trainer, None)
        shards = 1 if device == "cpu" else world
        frozen = frozen_bytes(part.model, part.actor, world) // shards
    return _claim(
        config,
        "training",
        part.model,
        part.actor,
        held=held + frozen,
        stays=0 if part.ref.param_offload else frozen,
        device=device,
        gpu_bytes=gpu_bytes,
        suffix=" + reference" if with_reference else "",
    )


def _held(
    config: Config, model: ModelConfig, trained: TrainedConfig, *, device: str, pool: str | None
) -> int:
    """Return the bytes of a process and its training state; on CPU of all processes together."""
    world = device_count(config.trainer, pool)
    total = state(model, trained, world).total
    if device == "cuda":
        total //= world
        if lives_in_host_memory(trained):
            total = 0
    return total + _processes_bytes(world, device)


def _claim(
    config: Config,
    who: str,
    model: ModelConfig,
    trained: TrainedConfig,
    *,
    held: int,
    device: str,
    gpu_bytes: int,
    stays: int = 0,
    pool: str | None = None,
    suffix: str = "",
) -> Claim:
    """Return the claim of a model that trains. `stays`: bytes of `held` that stay on the devices
    even where the model is offloaded."""
    world = device_count(config.trainer, pool)
    tokens = planned_tokens(config, trained)
    slices = SLICE_ELEMENTS
    if device == "cuda" and gpu_bytes:
        slices = elements_within(gpu_bytes)
    elif device == "cuda":
        slices = LARGEST_SLICE_ELEMENTS
    activations = activation_bytes(model, trained, world, tokens=tokens, slice_elements=slices)
    if device == "cpu":
        activations *= world
    away = held
    if device == "cuda" and offloads_state(trained):
        away = _processes_bytes(world, device) + stays
        away += stays_bytes(model, trained, world) // world
    return Claim(
        who=who,
        what=f"{Path(str(model.path)).name} {layout(trained, world)}{suffix}",
        awake_bytes=held + activations,
        held_bytes=held,
        away_bytes=away,
        when=("train",),
        devices=_devices(config, pool, device),
    )


def planned_tokens(config: Config, trained: TrainedConfig) -> int:
    """Return the tokens that the largest micro-batch has in all processes that share its rows."""
    longest = config.data.max_prompt_length + config.data.max_response_length
    rows = trained.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    if trained.ppo_micro_batch_size_per_gpu:
        rows = min(rows, trained.ppo_micro_batch_size_per_gpu)
    if not trained.use_dynamic_bsz:
        return rows * longest
    limit = trained.micro_batch_tokens * trained.fsdp_config.ulysses_sequence_parallel_size
    return max(longest, min(limit, rows * longest))


def rollout_sleeps(config: Config, *, device: str) -> bool:
    """Return whether the rollout engines sleep while rewards are computed and the policy trains. In
    a pool of their own they stay awake."""
    rollout = config.actor_rollout_ref.rollout
    if not rollout.free_cache_engine or rollout.pool is not None:
        return False
    return device in rollout_facts(rollout.name).sleeps_on


def rollout_asleep_bytes(config: Config, *, device: str) -> int:
    """Return the planned bytes of sleeping rollout engines: on each of their devices (CPU: of all
    engines together)."""
    part = config.actor_rollout_ref
    rollout = part.rollout
    facts = rollout_facts(rollout.name)
    base = ENGINE_PROCESS_BYTES[device]
    if device == "cuda":
        return base + facts.kept_asleep_bytes()
    weights = weight_bytes(str(part.model.path), rollout.dtype)
    if facts.reserves_gpu_share:
        parts = rollout.tensor_parallel_size * base
        return rollout.data_parallel_size * (2 * weights + parts)
    return rollout.data_parallel_size * (weights + base)


def rollout_beyond_sleep(config: Config, *, device: str, gpu_bytes: int) -> int:
    """Return the planned bytes that rollout engines hold awake beyond those that they hold while
    rewards are computed, on each of their devices. Raises ConfigError for a checkpoint without
    weights."""
    claim = _rollout(config, device, gpu_bytes)
    return claim.awake_bytes - claim.away_bytes


def _rollout(config: Config, device: str, gpu_bytes: int) -> Claim:
    rollout = config.actor_rollout_ref.rollout
    path = str(config.actor_rollout_ref.model.path)
    weights = weight_bytes(path, rollout.dtype)
    base = ENGINE_PROCESS_BYTES[device]
    width = rollout.tensor_parallel_size
    engines = rollout.data_parallel_size
    reserves = rollout_facts(rollout.name).reserves_gpu_share
    away = rollout_asleep_bytes(config, device=device)
    if device == "cuda":
        awake = weights + base + BATCH_BYTES
        if reserves:
            awake = rollout_reserve(config, gpu_bytes=gpu_bytes).start
            if rollout.gpu_memory_utilization is not None:
                share = int(gpu_bytes * rollout.gpu_memory_utilization)
                awake = max(share, weights // width + base)
    elif reserves:
        awake = away + engines * width * rollout.kv_cache_bytes
    else:
        awake = away + engines * BATCH_BYTES
    return Claim(
        who=ROLLOUT,
        what=f"{Path(path).name} {rollout.name}",
        awake_bytes=awake,
        away_bytes=away if rollout_sleeps(config, device=device) else awake,
        when=("rollout",) if rollout.pool is None else PHASES,
        devices=_devices(config, rollout.pool, device),
    )


def rollout_reserve(config: Config, *, gpu_bytes: int) -> Reserve:
    """Return what a rollout engine has use for on each GPU."""
    rollout = config.actor_rollout_ref.rollout
    path = str(config.actor_rollout_ref.model.path)
    longest = config.data.max_prompt_length + config.data.max_response_length
    engines = max(1, device_count(config.trainer, rollout.pool) // rollout.tensor_parallel_size)
    prompts = config.data.gen_batch_size or config.data.train_batch_size
    samples = -(-prompts * rollout.n // engines)
    return reserve(
        path,
        held_bytes=weight_bytes(path, rollout.dtype),
        width=rollout.tensor_parallel_size,
        context=rollout.max_model_len or longest,
        sequences=min(samples, rollout.max_num_seqs or ROLLOUT_SEQUENCES["cuda"]),
        batched_tokens=rollout.max_num_batched_tokens,
        gpu_bytes=gpu_bytes,
        chunks=rollout.enable_chunked_prefill,
        stays=not rollout_sleeps(config, device="cuda"),
    )


def _policy_host(config: Config, extras: Extras) -> list[Claim]:
    """Return the host memory of a machine with GPUs: offloaded training state of all its processes,
    the published weights, those of sleeping rollout engines."""
    part = config.actor_rollout_ref
    rollout = part.rollout
    nodes = config.trainer.nnodes
    trained: list[tuple[str, ModelConfig, TrainedConfig, str | None]] = [
        ("training", part.model, part.actor, None)
    ]
    if extras.critic is not None:
        trained.append(("critic", extras.critic.model, extras.critic, extras.critic.pool))
    claims: list[Claim] = []
    for who, model, settings, pool in trained:
        if not offloads_state(settings):
            continue
        waiting = waits_bytes(model, settings, device_count(config.trainer, pool))
        if waiting:
            what = f"{Path(str(model.path)).name} {settings.strategy}, offloaded"
            claims.append(host(who, what, waiting // nodes))
    weights = weight_bytes(str(part.model.path), rollout.dtype)
    if publishes_by_file(config):
        claims.append(host("rollout", "published weights in shared memory", weights))
    if rollout_sleeps(config, device="cuda"):
        engines = max(
            1, device_count(config.trainer, None) // nodes // rollout.tensor_parallel_size
        )
        claims.append(host("rollout", "weights, asleep", engines * weights, pinned=True))
    return claims


def publishes_by_file(config: Config) -> bool:
    """Return whether new weights reach the rollout engines through a file in shared memory."""
    return config.actor_rollout_ref.rollout.weight_transport in ("auto", "file")
