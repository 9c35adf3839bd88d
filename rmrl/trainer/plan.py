"""Who will hold how much memory where in a training run, estimated from checkpoint headers before
anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmrl.cluster.devices import total_bytes
from rmrl.cluster.ledger import MEMORY, PHASES, Claim, MemoryPlan
from rmrl.cluster.pools import pool_sizes
from rmrl.config.schema import Config, CriticConfig, ModelConfig, TrainedConfig
from rmrl.models.checkpoint_inspect import weight_bytes
from rmrl.rewards.residency import EnginePlan
from rmrl.rewards.residency.sizes import ENGINE_PROCESS_BYTES
from rmrl.scoring.memory import engine_claims, gpu, host, plan_of
from rmrl.trainer.train_memory import (
    activation_bytes,
    frozen_bytes,
    layout,
    offloads_state,
    state,
    stays_bytes,
    waits_bytes,
)

TRAIN_PROCESS_BYTES = {"cpu": 600 * 2**20, "cuda": 600 * 2**20}


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
) -> MemoryPlan:
    """The plan of a training run. `budget_bytes`: of each GPU, or of the machine; `host_bytes`:
    host memory of a machine with GPUs."""
    policy = policy_claims(config, device=device, extras=extras)
    return plan_of([*policy, *engine_claims(engines)], budget_bytes, host_bytes)


# --- the policy


def policy_claims(config: Config, *, device: str, extras: Extras) -> list[Claim]:
    """Training and rollout, each on its devices, and what they keep in host memory."""
    world = config.trainer.n_gpus_per_node * config.trainer.nnodes
    training = _training(config, device, extras.reference)
    claims = [
        training,
        *([_critic(config, extras.critic, device)] if extras.critic else []),
        _rollout(config, device),
    ]
    return claims + (_policy_host(config, extras, world) if device == "cuda" else [])


def _devices(config: Config, pool: str | None, device: str) -> tuple[str, ...]:
    """Those of a pool, or the policy's own."""
    if device == "cpu":
        return (MEMORY,)
    return tuple(gpu(pool or "", number) for number in range(_count(config, pool)))


def _count(config: Config, pool: str | None) -> int:
    if pool is None:
        return config.trainer.n_gpus_per_node * config.trainer.nnodes
    return pool_sizes(config.trainer.resource_pools)[pool].devices


def _training(config: Config, device: str, with_reference: bool) -> Claim:
    """Weights, gradients and optimizer state; the activations of one micro-batch; the reference's
    weights."""
    part = config.actor_rollout_ref
    held, frozen = _held(config, part.model, part.actor, device=device, pool=None), 0
    if with_reference:
        world = _count(config, None)
        frozen = frozen_bytes(part.model, part.actor, world) // (1 if device == "cpu" else world)
    return _claim(
        config,
        "training",
        part.model,
        part.actor,
        held=held + frozen,
        stays=0 if part.ref.param_offload else frozen,
        device=device,
        suffix=" + reference" if with_reference else "",
    )


def _critic(config: Config, critic: CriticConfig, device: str) -> Claim:
    """As training; in the policy's processes unless it has a pool."""
    held = _held(config, critic.model, critic, device=device, pool=critic.pool)
    if critic.pool is None:
        held -= (_count(config, None) if device == "cpu" else 1) * TRAIN_PROCESS_BYTES[device]
    return _claim(
        config, "critic", critic.model, critic, held=held, device=device, pool=critic.pool
    )


def _held(
    config: Config, model: ModelConfig, trained: TrainedConfig, *, device: str, pool: str | None
) -> int:
    """Bytes of the processes and the training state; on CPU of all processes together."""
    world = _count(config, pool)
    shards, processes = (1, world) if device == "cpu" else (world, 1)
    return state(model, trained, world).total // shards + processes * TRAIN_PROCESS_BYTES[device]


def _claim(
    config: Config,
    who: str,
    model: ModelConfig,
    trained: TrainedConfig,
    *,
    held: int,
    device: str,
    stays: int = 0,
    pool: str | None = None,
    suffix: str = "",
) -> Claim:
    """`stays`: bytes of `held` that stay on the devices whatever the model that trains offloads."""
    world = _count(config, pool)
    activations = activation_bytes(
        model, trained, world, tokens=_micro_batch_tokens(config, trained)
    ) * (world if device == "cpu" else 1)
    offloads = device == "cuda" and offloads_state(trained)
    return Claim(
        who=who,
        what=f"{Path(str(model.path)).name} {layout(trained, world)}{suffix}",
        awake_bytes=held + activations,
        away_bytes=(
            TRAIN_PROCESS_BYTES[device] + stays + stays_bytes(model, trained, world) // world
            if offloads
            else held
        ),
        when=("train",),
        devices=_devices(config, pool, device),
    )


def _micro_batch_tokens(config: Config, trained: TrainedConfig) -> int:
    longest = config.data.max_prompt_length + config.data.max_response_length
    rows = trained.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    return max(longest, min(trained.ppo_max_token_len_per_gpu, rows * longest))


def _rollout(config: Config, device: str) -> Claim:
    rollout, path = config.actor_rollout_ref.rollout, str(config.actor_rollout_ref.model.path)
    weights = weight_bytes(path, rollout.dtype)
    base = ENGINE_PROCESS_BYTES[device]
    if device == "cuda":
        least = weights // rollout.tensor_parallel_size + base
        awake, away = max(int(total_bytes("cuda") * rollout.gpu_memory_utilization), least), base
    else:
        engines, width = rollout.data_parallel_size, rollout.tensor_parallel_size
        away = engines * (2 * weights + width * base)
        awake = away + engines * width * rollout.kv_cache_bytes
    return Claim(
        who="rollout",
        what=f"{Path(path).name} {rollout.name}",
        awake_bytes=awake,
        away_bytes=away if rollout.free_cache_engine and rollout.pool is None else awake,
        when=("rollout",) if rollout.pool is None else PHASES,
        devices=_devices(config, rollout.pool, device),
    )


def _policy_host(config: Config, extras: Extras, world: int) -> list[Claim]:
    """On a machine with GPUs: offloaded training state of all its processes, weights of sleeping
    rollout engines."""
    rollout, part = config.actor_rollout_ref.rollout, config.actor_rollout_ref
    trained: list[tuple[str, ModelConfig, TrainedConfig, str | None]] = [
        ("training", part.model, part.actor, None)
    ]
    trained += (
        [("critic", extras.critic.model, extras.critic, extras.critic.pool)]
        if extras.critic
        else []
    )
    kept = [
        host(
            who,
            f"{Path(str(model.path)).name} {settings.strategy}, offloaded",
            waiting // config.trainer.nnodes,
        )
        for who, model, settings, pool in trained
        if offloads_state(settings)
        and (waiting := waits_bytes(model, settings, _count(config, pool)))
    ]
    if rollout.free_cache_engine and rollout.pool is None:
        engines = max(1, world // config.trainer.nnodes // rollout.tensor_parallel_size)
        kept.append(
            host(
                "rollout",
                "weights, asleep",
                engines * weight_bytes(str(part.model.path), rollout.dtype),
            )
        )
    return kept
