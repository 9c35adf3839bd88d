"""Checks of the memory plan: what it expects of an update, beside what the device holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_check.gauges import GIB, Watch, fresh, used_gib
from benchmarks.gpu_check.model import write_random
from benchmarks.gpu_check.rig import Numbers, Rig, named, require
from benchmarks.gpu_check.training import built, settings_of
from benchmarks.step_memory import SHAPE_7B
from rmrl.assemble.memory import budgets
from rmrl.cluster.devices import local_devices
from rmrl.config.load import compose_config
from rmrl.models.checkpoint_inspect import parameter_count
from rmrl.models.linear_head import slice_elements
from rmrl.trainer.device_defaults import CACHED, fill_training
from rmrl.trainer.plan import Extras, memory_plan, planned_tokens
from rmrl.trainer.throughput import peak_flops
from rmrl.trainer.train_memory import activation_bytes, state
from rmrl.types import Ragged, TrainBatch

_SMALL = {"hidden_size": 64, "intermediate_size": 192, "num_attention_heads": 4, "vocab_size": 512}
_MICRO_BATCHES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    tokens: int = 16_384
    every: int = 1
    """One of so many layers recomputes; 0: none does."""
    compiled: bool = False
    lora_rank: int = 0


WAYS = {
    "checkpointing": _Way(),
    "second": _Way(every=2),
    "none": _Way(every=0),
    "few": _Way(every=0, tokens=4096),
    "lora": _Way(lora_rank=16),
    "compiled": _Way(compiled=True),
}


def planned_update(rig: Rig) -> Numbers:
    """Four layers of a 7B with its embeddings: GiB of an update in the plan, of its tensors and on
    the device, seconds of a micro-batch, and the share of the device's peak that it reaches."""
    on_cuda = rig.device == "cuda"
    shape: dict[str, Any] = SHAPE_7B | {"num_hidden_layers": 4} | ({} if on_cuda else _SMALL)
    path = _model(shape, rig)
    at = replace(rig, model=str(path))
    peak = peak_flops(torch.cuda.get_device_name(0)) if on_cuda else None
    numbers: Numbers = {}
    ways = {**WAYS, "default": _default(at)} if on_cuda else WAYS
    for name, way in ways.items():
        if way.compiled and not on_cuda:
            continue
        tokens = way.tokens if on_cuda else 64
        measured = _update(at, way, tokens=tokens)
        if peak is not None:
            operations = 6.0 * parameter_count(str(path)) * tokens
            measured["mfu"] = operations / measured["micro_s"] / peak
        numbers |= named(name, measured)
    if on_cuda:
        short = {
            name: numbers[f"{name}_tensors_gib"] / numbers[f"{name}_planned_gib"] for name in ways
        }
        most = max(short, key=lambda name: short[name])
        message = f"{most}: {short[most]:.2f} times the bytes that were planned"
        require(short[most] <= 1.0, message, numbers)
        chosen = ways["default"]
        numbers |= {"default_tokens": chosen.tokens, "default_every": chosen.every}
        cached = numbers["default_reserved_gib"] / numbers["default_planned_gib"]
        message = f"torch holds {cached:.2f} times the bytes that were planned"
        require(cached <= CACHED, message, numbers)
    return numbers


def _default(rig: Rig) -> _Way:
    """What a job on this device gets that states neither level nor tokens."""
    config = compose_config(
        [
            f"actor_rollout_ref.model.path={rig.model}",
            "data.max_prompt_length=512",
            "data.max_response_length=512",
            "trainer.n_gpus_per_node=1",
        ]
    )
    devices = local_devices("cuda")
    plan = partial(
        memory_plan,
        config,
        [],
        device=devices.kind,
        extras=Extras(),
        gpu_bytes=devices.total_bytes(),
        **budgets(config.trainer, devices),
    )
    for line in fill_training(config, None, device=devices.kind, plan=plan):
        print(line, flush=True)
    part = config.actor_rollout_ref
    tokens = planned_tokens(config, part.actor)
    return _Way(tokens=tokens, every=part.model.recomputed_every)


def _update(rig: Rig, way: _Way, *, tokens: int) -> Numbers:
    """Of one and of three micro-batches."""
    fresh(rig)
    settings = settings_of(
        rig,
        model={
            "enable_gradient_checkpointing": way.every > 0,
            "gradient_checkpointing_every": way.every if way.every > 1 else None,
            "lora_rank": way.lora_rank,
            "share_prompts": False,
        },
        fsdp={"compile_layers": way.compiled},
        ppo_max_token_len_per_gpu=tokens,
    )
    before = used_gib(rig)
    slices = slice_elements(torch.device(rig.device))
    planned = activation_bytes(
        settings.model, settings.trained, 1, tokens=tokens, slice_elements=slices
    )
    held = state(settings.model, settings.trained, 1).total
    with built(settings, rig) as policy:
        policy.update([_rows(2, tokens)])  # the optimizer has its state, kernels are compiled
        fresh(rig)
        numbers = {"state_gib": policy.memory_bytes() / GIB, "state_planned_gib": held / GIB}
        watch = Watch(rig)
        policy.update([_rows(1, tokens)])
        one_s = watch.seconds()
        watch = Watch(rig)
        policy.update([_rows(_MICRO_BATCHES, tokens)])
        all_s = watch.seconds()
        numbers["one_s"] = one_s
        numbers["micro_s"] = (all_s - one_s) / (_MICRO_BATCHES - 1)
        numbers["planned_gib"] = (held + planned) / GIB
        if rig.device == "cuda":
            numbers["tensors_gib"] = torch.cuda.max_memory_allocated() / GIB
            numbers["reserved_gib"] = torch.cuda.max_memory_reserved() / GIB
            numbers["device_gib"] = used_gib(rig) - before
    return numbers


def _rows(micro_batches: int, tokens: int) -> TrainBatch:
    """Rows of equal length, half of it the prompt's."""
    length = min(1024, tokens)
    draw = np.random.default_rng(0)
    count = micro_batches * tokens // length
    ones = Ragged.of([np.ones(length // 2)] * count, np.float32)
    rows = [draw.integers(5, 500, length) for _ in range(count)]
    return TrainBatch(tokens=Ragged.of(rows, np.int64), response_mask=ones, advantages=ones)


def _model(shape: dict[str, Any], rig: Rig) -> Path:
    from transformers import Qwen2Config

    given = {key: value for key, value in shape.items() if key != "model_type"}
    folder = Path(rig.folder) / "planned"
    return write_random(Qwen2Config(**given), folder, dtype=torch.bfloat16, device=rig.device)
