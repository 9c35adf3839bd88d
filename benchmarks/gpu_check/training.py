"""Checks of the training engine: one process, the calls that a run makes."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_check.gauges import peak_gib
from benchmarks.gpu_check.model import Plain
from benchmarks.gpu_check.rig import Numbers, Rig, Skip, apart, named, require
from rmrl.backends import TRAIN_ENGINES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.config.schema import ActorConfig, CriticConfig, FSDPConfig, ModelConfig, OptimConfig
from rmrl.types import Ragged

FLOOR = {"float32": 1e-3, "bfloat16": 1e-2, "float16": 1e-2}
"""Mean difference of log-probabilities that rounding alone explains, whatever the reference
does."""


def learning_rate(rig: Rig) -> float:
    """AdamW moves every weight by about this; a sum over the hidden size then moves by a quarter at
    most, in any model."""
    return (
        0.25
        / json.loads((Path(rig.model) / "config.json").read_text(encoding="utf-8"))["hidden_size"]
    )


@contextmanager
def engine(
    rig: Rig,
    *,
    model: dict[str, Any] | None = None,
    fsdp: dict[str, Any] | None = None,
    **actor: Any,
) -> Iterator[Any]:
    """A policy in training; the entries are those of `settings_of`."""
    with built(settings_of(rig, model=model, fsdp=fsdp, **actor), rig) as made:
        yield made


def settings_of(
    rig: Rig,
    *,
    model: dict[str, Any] | None = None,
    fsdp: dict[str, Any] | None = None,
    **actor: Any,
) -> TrainSettings:
    """Of a policy. `model`, `fsdp`, `actor`: entries of their sections that are not the default."""
    compute = None if rig.dtype == "float32" else rig.dtype
    return TrainSettings(
        model=ModelConfig(
            path=rig.model, **{"enable_gradient_checkpointing": False, **(model or {})}
        ),
        actor=ActorConfig(
            optim=OptimConfig(lr=learning_rate(rig), weight_decay=0.0),
            fsdp_config=FSDPConfig(**{"param_dtype": compute, **(fsdp or {})}),
            **actor,
        ),
        temperature=rig.temperature,
        total_steps=100,
        max_response_length=rig.longest,
        device=rig.device,
    )


@contextmanager
def built(settings: TrainSettings, rig: Rig) -> Iterator[Any]:
    """The engine of `settings`, and the end of its process group."""
    made: Any = TRAIN_ENGINES[settings.trained.strategy](
        settings, ProcessSettings(threads=rig.threads if rig.device == "cpu" else None)
    )
    try:
        yield made
    finally:
        made.close()


def on_cuda(rig: Rig) -> None:
    """Skip elsewhere."""
    if rig.device != "cuda":
        raise Skip("of CUDA alone")


def fsdp2_step(rig: Rig) -> Numbers:
    """Updates with advantage 1 make the rows likelier; the gradient is finite."""
    batch = rig.batch()
    with engine(rig) as policy:
        before = policy.logprobs(batch).values.mean()
        first = policy.update([batch])
        started = time.perf_counter()
        norms = [policy.update([batch])["policy/grad_norm"] for _ in range(3)]
        seconds = time.perf_counter() - started
        after = policy.logprobs(batch).values.mean()
    tokens = 3 * float(batch.tokens.lengths.sum())
    numbers = {
        "logprob_before": float(before), "logprob_after": float(after), "grad_norm": float(first["policy/grad_norm"]),
        "tokens_per_s": tokens / seconds, **peak_gib(rig),
    }  # fmt: skip
    require(
        bool(np.isfinite([*norms, numbers["grad_norm"]]).all()), "a gradient is not finite", numbers
    )
    require(
        after > before + 0.1,
        "four updates with advantage 1 did not make the rows likelier by 0.1",
        numbers,
    )
    return numbers


def logprobs(rig: Rig) -> Numbers:
    """The engine's log-probabilities are as near the truth (float32, unpadded) as transformers' own
    in the same dtype."""
    batch = rig.batch()
    truth = Plain(rig.model, rig.device).batch_logprobs(batch, rig.temperature)
    plain = Plain(rig.model, rig.device, rig.dtype).batch_logprobs(batch, rig.temperature)
    with engine(rig) as policy:
        ours = policy.logprobs(batch)
    return as_near(ours, plain, truth, rig.dtype)


def as_near(ours: Ragged, plain: Ragged, truth: Ragged, dtype: str) -> Numbers:
    """Require that `ours` is not much farther from `truth` than `plain`, which has the same
    dtype."""
    numbers = (
        named("ours", apart(ours, truth))
        | named("plain", apart(plain, truth))
        | named("between", apart(ours, plain))
    )
    limit = 2 * numbers["plain_mean"] + FLOOR[dtype]
    require(
        numbers["ours_mean"] <= limit,
        f"log-probabilities are off by {numbers['ours_mean']:.2g} on average, more than"
        f" {limit:.2g}",
        numbers,
    )
    return numbers


def fsdp1_equals_fsdp2(rig: Rig) -> Numbers:
    """FullyShardedDataParallel and fully_shard give the same step."""
    found = {}
    for strategy in ("fsdp2", "fsdp"):
        with engine(rig, strategy=strategy) as policy:
            found[strategy] = one_step(policy, rig)
    return same_step(found["fsdp"], found["fsdp2"], rig)


def gradient_checkpointing(rig: Rig) -> Numbers:
    """Recomputed activations change the memory and not the step."""
    found, memory = {}, {}
    for on in (False, True):
        if rig.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        with engine(rig, model={"enable_gradient_checkpointing": on}) as policy:
            found[on] = one_step(policy, rig)
        memory |= {
            f"checkpointing_{on}_{name}".lower(): value for name, value in peak_gib(rig).items()
        }
    return same_step(found[True], found[False], rig) | memory


def packing(rig: Rig) -> Numbers:
    """Packed rows (flash-attention where it is installed, else flex attention; on CPU SDPA) give
    the padded rows' numbers."""
    ways = {"sdpa": "sdpa"} if rig.device == "cpu" else {"flex": "flex_attention"}
    if rig.device == "cuda" and importlib.util.find_spec("flash_attn") and rig.dtype != "float32":
        ways["flash"] = "flash_attention_2"
    with engine(rig) as policy:
        padded, padded_s = one_step(policy, rig), _seconds(policy, rig)
    numbers: Numbers = {"padded_s": padded_s}
    for name, attention in ways.items():
        with engine(
            rig, model={"use_remove_padding": True, "attn_implementation": attention}
        ) as policy:
            numbers |= named(name, same_step(one_step(policy, rig), padded, rig))
            numbers[f"{name}_s"] = _seconds(policy, rig)
    return numbers


Step = tuple[Ragged, float, Ragged]
"""Log-probabilities before a step, its gradient norm, log-probabilities after it."""


def one_step(policy: Any, rig: Rig) -> Step:
    """The rig's batch, once."""
    batch = rig.batch()
    before = policy.logprobs(batch)
    return before, float(policy.update([batch])["policy/grad_norm"]), policy.logprobs(batch)


def same_step(ours: Step, theirs: Step, rig: Rig) -> Numbers:
    """Require that two steps are the same up to rounding."""
    norms = {"grad_norm": ours[1], "grad_norm_apart": abs(ours[1] - theirs[1]) / theirs[1]}
    numbers = (
        named("before", apart(ours[0], theirs[0]))
        | named("after", apart(ours[2], theirs[2]))
        | norms
    )
    floor = FLOOR[rig.dtype]
    require(numbers["before_mean"] <= 3 * floor, "log-probabilities differ", numbers)
    require(numbers["grad_norm_apart"] <= 10 * floor, "the gradients differ", numbers)
    require(numbers["after_mean"] <= 10 * floor, "log-probabilities differ after the step", numbers)
    return numbers


def _seconds(policy: Any, rig: Rig) -> float:
    """Of one update, its metrics included (which waits for the device)."""
    batch = rig.batch(seed=1)
    started = time.perf_counter()
    policy.update([batch])
    return time.perf_counter() - started


def offload(rig: Rig) -> Numbers:
    """Parameters and optimizer go to host memory and back without a change, and device memory is
    free meanwhile."""
    batch = rig.batch()
    with engine(rig, fsdp={"param_offload": True, "optimizer_offload": True}) as policy:
        policy.update([batch])
        before, there = policy.logprobs(batch), policy.memory_bytes()
        policy.offload()
        away = policy.memory_bytes()
        policy.onload()
        after = policy.logprobs(batch)
        again = float(policy.update([batch])["policy/grad_norm"])
    numbers = {
        "on_device_gib": there / 2**30,
        "offloaded_gib": away / 2**30,
        "grad_norm": again,
        **apart(before, after),
    }
    require(numbers["max"] == 0.0, "log-probabilities changed on the way", numbers)
    require(bool(np.isfinite(again)), "the update after it has no finite gradient", numbers)
    if rig.device == "cuda":
        require(away < 0.1 * there + 64 * 2**20, "device memory was not given back", numbers)
    return numbers


def offload_policy(rig: Rig) -> Numbers:
    """Everything lives in host memory, layers visit the device: the same step in less device
    memory."""
    on_cuda(rig)
    found, memory = {}, {}
    for on in (False, True):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with engine(rig, fsdp={"offload_policy": on}) as policy:
            found[on] = one_step(policy, rig)
        memory[f"offload_policy_{on}_peak_gib".lower()] = peak_gib(rig)["peak_gib"]
    return same_step(found[True], found[False], rig) | memory


def checkpoint(rig: Rig) -> Numbers:
    """What is saved loads into another engine with the same numbers, and the next step is the
    same."""
    batch, folder = rig.batch(), Path(rig.folder) / "checkpoint"
    with engine(rig) as policy:
        policy.update([batch])
        policy.save(str(folder))
        before = policy.logprobs(batch)
        norm = float(policy.update([batch])["policy/grad_norm"])
    with engine(rig) as other:
        other.load(str(folder))
        after = other.logprobs(batch)
        again = float(other.update([batch])["policy/grad_norm"])
    numbers = {
        **apart(before, after),
        "grad_norm": norm,
        "grad_norm_apart": abs(again - norm) / norm,
    }
    require(numbers["max"] <= FLOOR[rig.dtype], "log-probabilities differ after loading", numbers)
    require(numbers["grad_norm_apart"] <= FLOOR[rig.dtype], "the next step differs", numbers)
    return numbers


def lora(rig: Rig) -> Numbers:
    """Adapters train, and the merged weights that are published are the policy that trains."""
    if importlib.util.find_spec("peft") is None:
        raise Skip("peft is not installed")
    batch = rig.batch()
    with engine(rig, model={"lora_rank": 8, "lora_alpha": 16}) as policy:
        before = policy.logprobs(batch)
        for _ in range(4):
            policy.update([batch])
        after, merged = policy.logprobs(batch), list(policy.weights("float32"))
    truth, plain = Plain(rig.model, rig.device), Plain(rig.model, rig.device, rig.dtype)
    for reference in (truth, plain):
        reference.load(merged)
    gained = float(after.values.mean() - before.values.mean())
    exact = truth.batch_logprobs(batch, rig.temperature)
    numbers = {
        **as_near(after, plain.batch_logprobs(batch, rig.temperature), exact, rig.dtype),
        "gained": gained,
    }
    require(
        gained > 0.02,
        "four updates with advantage 1 did not make the rows likelier by 0.02",
        numbers,
    )
    return numbers


def critic(rig: Rig) -> Numbers:
    """The value loss falls."""
    ones = rig.batch().response_mask
    returns = Ragged(np.linspace(-1, 1, len(ones.values), dtype=np.float32), ones.lengths)
    batch = rig.batch(returns=returns)
    compute = None if rig.dtype == "float32" else rig.dtype
    model = ModelConfig(path=rig.model, enable_gradient_checkpointing=False)
    section = CriticConfig(
        model=model, strategy="fsdp2", ppo_mini_batch_size=1, ppo_epochs=1, optim=OptimConfig(lr=learning_rate(rig)),
        fsdp_config=FSDPConfig(param_dtype=compute),
    )  # fmt: skip
    settings = TrainSettings(
        model=model,
        actor=ActorConfig(),
        critic=section,
        role="critic",
        total_steps=100,
        max_response_length=rig.longest,
        device=rig.device,
    )
    with built(settings, rig) as value_model:
        losses = []
        for _ in range(6):
            current = replace(batch, values=value_model.values(batch))
            losses.append(float(value_model.update([current])["critic/value_loss"]))
        values = value_model.values(batch)
    numbers = {
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "value_mean": float(values.values.mean()),
    }
    require(bool(np.isfinite(losses).all()), "a value loss is not finite", numbers)
    require(
        losses[-1] < 0.9 * losses[0], "six updates did not lower the value loss by a tenth", numbers
    )
    return numbers
