"""Who will hold how much memory where in a training run, estimated from checkpoint headers before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmrl.cluster.devices import total_bytes
from rmrl.cluster.ledger import MEMORY, Claim, MemoryPlan
from rmrl.config.schema import Config
from rmrl.models.checkpoint_inspect import parameter_count, read_config, weight_bytes
from rmrl.rewards.residency import EnginePlan
from rmrl.rewards.residency.sizes import ENGINE_PROCESS_BYTES
from rmrl.scoring.memory import engine_claims, gpu, host, plan_of

TRAIN_PROCESS_BYTES = {"cpu": 600 * 2**20, "cuda": 600 * 2**20}
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def memory_plan(
    config: Config,
    engines: Sequence[EnginePlan],
    *,
    device: str,
    budget_bytes: int,
    with_reference: bool,
    host_bytes: int | None = None,
) -> MemoryPlan:
    """The plan of a training run. `budget_bytes`: of each GPU, or of the machine; `host_bytes`: host memory of a machine with GPUs."""
    policy = policy_claims(config, device=device, with_reference=with_reference)
    return plan_of([*policy, *engine_claims(engines)], budget_bytes, host_bytes)


# --- the policy ----------------------------------------------------------------------------------------------------------


def policy_claims(config: Config, *, device: str, with_reference: bool) -> list[Claim]:
    """Training and rollout, on each of the policy's devices, and what they keep in host memory."""
    world = config.trainer.n_gpus_per_node * config.trainer.nnodes
    devices = (MEMORY,) if device == "cpu" else tuple(gpu("", number) for number in range(world))
    claims = [_training(config, device, with_reference, devices), _rollout(config, device, devices)]
    return claims + (_policy_host(config, claims, world) if device == "cuda" else [])


def _training(config: Config, device: str, with_reference: bool, devices: tuple[str, ...]) -> Claim:
    """Weights, gradients and AdamW's two moments; the activations of one micro-batch; the reference's weights."""
    model, actor, fsdp = config.actor_rollout_ref.model, config.actor_rollout_ref.actor, config.actor_rollout_ref.actor.fsdp_config
    world = config.trainer.n_gpus_per_node * config.trainer.nnodes
    assert model.path is not None
    count = parameter_count(model.path)
    state = count * _DTYPE_BYTES.get(fsdp.model_dtype, 4) * 4
    reference = count * _DTYPE_BYTES.get(fsdp.param_dtype or fsdp.model_dtype, 4) if with_reference else 0
    shards = 1 if device == "cpu" else world
    processes = world if device == "cpu" else 1
    activations = _activation_bytes(config) * processes
    held = (state + reference) // shards + processes * TRAIN_PROCESS_BYTES[device]
    return Claim(
        who="training",
        what=f"{Path(model.path).name} {actor.strategy} x{world}" + (" + reference" if with_reference else ""),
        awake_bytes=held + activations,
        away_bytes=TRAIN_PROCESS_BYTES[device] if device == "cuda" and _offloads(config) else held,
        when=("train",),
        devices=devices,
    )


def _offloads(config: Config) -> bool:
    fsdp = config.actor_rollout_ref.actor.fsdp_config
    return fsdp.param_offload or fsdp.optimizer_offload


def _activation_bytes(config: Config) -> int:
    """Of one micro-batch in bf16: the layers' inputs with gradient checkpointing plus one layer, all layers without; and a logit chunk."""
    model = config.actor_rollout_ref.model
    shape = read_config(str(model.path))
    hidden, layers, vocab = (int(shape.get(key, 0)) for key in ("hidden_size", "num_hidden_layers", "vocab_size"))
    longest = config.data.max_prompt_length + config.data.max_response_length
    rows = config.actor_rollout_ref.actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    tokens = max(longest, min(config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu, rows * longest))
    per_layer = 34 * hidden * 2
    kept = layers * hidden * 2 + per_layer if model.enable_gradient_checkpointing else layers * per_layer
    return tokens * kept + min(tokens, 1024) * vocab * 4 * 3


def _rollout(config: Config, device: str, devices: tuple[str, ...]) -> Claim:
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
        away_bytes=away if rollout.free_cache_engine else awake,
        when=("rollout",),
        devices=devices,
    )


def _policy_host(config: Config, claims: Sequence[Claim], world: int) -> list[Claim]:
    """On a machine with GPUs: offloaded training state of all its processes, weights of sleeping rollout engines."""
    rollout, path = config.actor_rollout_ref.rollout, str(config.actor_rollout_ref.model.path)
    kept: list[Claim] = []
    if _offloads(config):
        state = parameter_count(path) * _DTYPE_BYTES.get(config.actor_rollout_ref.actor.fsdp_config.model_dtype, 4) * 3
        kept.append(host("training", f"{claims[0].what}, offloaded", state // config.trainer.nnodes))
    if rollout.free_cache_engine:
        engines = max(1, world // config.trainer.nnodes // rollout.tensor_parallel_size)
        kept.append(host("rollout", "weights, asleep", engines * weight_bytes(path, rollout.dtype)))
    return kept
