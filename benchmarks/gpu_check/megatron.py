"""Checks of strategy=megatron in one process: its step is FSDP2's, and its state survives host
memory and a checkpoint."""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.gauges import Watch, fresh, peak_gib
from benchmarks.gpu_check.rig import Numbers, Rig, Skip, named, require
from benchmarks.gpu_check.training import engine, on_cuda, one_step, same_step
from rmrl.config.schema import MegatronConfig


def megatron_step(rig: Rig) -> Numbers:
    """The same log-probabilities, gradient norm and weights after a step as under fsdp2."""
    fresh(rig)
    with engine(rig) as policy:
        theirs = one_step(policy, rig)
        numbers = named("fsdp2", {**peak_gib(rig), "s": seconds_of_update(policy, rig)})
    fresh(rig)
    with megatron(rig) as policy:
        ours = one_step(policy, rig)
        numbers |= named("padded", {**peak_gib(rig), "s": seconds_of_update(policy, rig)})
    return same_step(ours, theirs, rig) | numbers


def megatron_packing(rig: Rig) -> Numbers:
    """Packed rows give the padded rows' numbers."""
    with megatron(rig) as policy:
        padded = one_step(policy, rig)
    fresh(rig)
    with megatron(rig, model={"use_remove_padding": True, "attn_implementation": "sdpa"}) as policy:
        numbers = same_step(one_step(policy, rig), padded, rig)
        return numbers | {**peak_gib(rig), "s": seconds_of_update(policy, rig)}


def seconds_of_update(policy: Any, rig: Rig) -> float:
    """Of one update on the rig's batch."""
    watch = Watch(rig)
    policy.update([rig.batch()])
    return watch.seconds()


def megatron_offload(rig: Rig) -> Numbers:
    """Parameters, gradients and optimizer state leave the device between two steps, which are those
    of a run that keeps them there."""
    on_cuda(rig)
    batch = rig.batch()
    with megatron(rig) as policy:
        policy.update([batch])
        expected = one_step(policy, rig)
    del policy
    fresh(rig)
    with megatron(rig, param_offload=True, grad_offload=True, optimizer_offload=True) as policy:
        policy.update([batch])
        fresh(rig)
        on_device = policy.memory_bytes()
        policy.offload()
        away = policy.memory_bytes()
        policy.onload()
        numbers = same_step(one_step(policy, rig), expected, rig) | {
            "on_device": on_device / 2**30,
            "away": away / 2**30,
        }
    require(away < 0.1 * on_device, "most of the state stays on the device", numbers)
    return numbers


def megatron_checkpoint(rig: Rig) -> Numbers:
    """The step after loading is the step after saving."""
    batch, folder = rig.batch(), str(Path(rig.folder) / "megatron")
    with megatron(rig) as policy:
        policy.update([batch])
        policy.save(folder)
        expected = one_step(policy, rig)
    with megatron(rig) as policy:
        policy.load(folder)
        return same_step(one_step(policy, rig), expected, rig)


def megatron(
    rig: Rig, *, model: dict[str, Any] | None = None, **entries: Any
) -> AbstractContextManager[Any]:
    """A policy in training; `entries`: of actor.megatron."""
    if importlib.util.find_spec("megatron") is None:
        raise Skip('megatron-core is not installed: pip install "rmrl-toolkit[megatron]"')
    if rig.dtype == "float16":
        raise Skip("float16 would need a loss scale")
    return engine(
        rig, model=model, strategy="megatron", megatron=MegatronConfig(dtype=rig.dtype, **entries)
    )
