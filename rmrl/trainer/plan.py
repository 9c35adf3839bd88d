"""Who will hold how much memory, estimated from checkpoint headers before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmrl.cluster.ledger import Claim, MemoryPlan
from rmrl.config.schema import Config
from rmrl.models.checkpoint_inspect import parameter_count, read_config, weight_bytes
from rmrl.rewards.residency import EnginePlan

ENGINE_PROCESS_BYTES = {"cpu": 900 * 2**20, "cuda": 600 * 2**20}
"""An engine's process without model: torch and vLLM on CPU (measured: 0.9 GiB resident), context and workspaces on CUDA."""
TRAIN_PROCESS_BYTES = {"cpu": 600 * 2**20, "cuda": 600 * 2**20}
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def memory_plan(config: Config, engines: Sequence[EnginePlan], *, device: str, budget_bytes: int, with_reference: bool) -> MemoryPlan:
    """The plan for one device (CUDA) or for the machine (CPU)."""
    claims = [_training(config, device, with_reference), _rollout(config, device), *(_engine(plan) for plan in engines)]
    return MemoryPlan(claims, budget_bytes)


def _training(config: Config, device: str, with_reference: bool) -> Claim:
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
    offloads = device == "cuda" and (fsdp.param_offload or fsdp.optimizer_offload)
    return Claim(
        who="training",
        what=f"{Path(model.path).name} {actor.strategy} x{world}" + (" + reference" if with_reference else ""),
        awake_bytes=held + activations,
        away_bytes=TRAIN_PROCESS_BYTES[device] if offloads else held,
        when=("train",),
    )


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


def _rollout(config: Config, device: str) -> Claim:
    rollout, path = config.actor_rollout_ref.rollout, str(config.actor_rollout_ref.model.path)
    weights = weight_bytes(path, rollout.dtype) // rollout.tensor_parallel_size
    base = ENGINE_PROCESS_BYTES[device]
    if device == "cuda":
        awake, away = max(int(_cuda_total() * rollout.gpu_memory_utilization), weights + base), base
    else:
        engines = rollout.data_parallel_size
        awake, away = engines * (2 * weights + rollout.kv_cache_bytes + base), engines * (2 * weights + base)
    return Claim(
        who="rollout",
        what=f"{Path(path).name} {rollout.name}",
        awake_bytes=awake,
        away_bytes=away if rollout.free_cache_engine else awake,
        when=("rollout",),
    )


def _engine(plan: EnginePlan) -> Claim:
    spec = plan.spec
    weights = weight_bytes(spec.path, spec.dtype) // spec.tensor_parallel_size
    base = ENGINE_PROCESS_BYTES[spec.device]
    if spec.device == "cuda":
        awake = max(int(_cuda_total() * spec.gpu_memory_utilization), weights + base)
        away = {"sleep1": base, "sleep2": base, "unload": 0}[plan.put_away]
    else:
        kv = spec.kv_cache_bytes if spec.runner == "generate" else 0
        awake = 2 * weights + kv + base
        away = {"sleep1": 2 * weights + base, "sleep2": base, "unload": 0}[plan.put_away]
    resident = plan.residency == "resident"
    return Claim(
        who=plan.label,
        what=f"{Path(spec.path).name} {spec.name}/{spec.runner}, {'resident' if resident else plan.put_away}",
        awake_bytes=awake,
        away_bytes=awake if resident else away,
        when=("score",),
        alternates=not resident,
    )


def _cuda_total() -> int:
    import torch

    return int(torch.cuda.mem_get_info(0)[1])
