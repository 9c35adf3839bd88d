"""Checks of what grows with the model: the output head of a wide vocabulary, memory around an
update, host memory, files and handles of large tensors."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor

from benchmarks.gpu_check.gauges import GIB, Watch, fresh, peak_gib, used_gib
from benchmarks.gpu_check.rig import Numbers, Rig, Skip, named, require
from benchmarks.gpu_check.training import engine
from rmrl.backends.memory import process_memory_bytes
from rmrl.inference.weights.file import read_weights
from rmrl.models.linear_head import LinearHead, slice_elements
from rmrl.models.logprobs import token_logprobs

_TIMES = 3
_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class _Shape:
    positions: int
    hidden: int
    vocabulary: int


WIDE = _Shape(16_384, 3584, 152_064)
"""Qwen2.5-7B's head and a micro-batch of 16k tokens."""
_ON_CPU = _Shape(96, 64, 4096)


def wide_head(rig: Rig) -> Numbers:
    """Log-probabilities and gradients of a wide head by slice size: seconds, peak, and the error of
    the gradients against float32."""
    shape = WIDE if rig.device == "cuda" else _ON_CPU
    dtype = getattr(torch, rig.dtype)
    torch.manual_seed(0)
    hidden_NH = torch.randn(shape.positions, shape.hidden, device=rig.device, dtype=dtype)
    weight_VH = torch.randn(shape.vocabulary, shape.hidden, device=rig.device, dtype=dtype)
    weight_VH.mul_(shape.hidden**-0.5)
    targets_N = torch.randint(shape.vocabulary, (shape.positions,), device=rig.device)
    automatic = slice_elements(torch.device(rig.device))
    numbers: Numbers = {"automatic_log2": float(automatic.bit_length() - 1)}
    for elements in sorted({2**24, 2**26, 2**28, automatic}):
        fresh(rig)
        head_gradients(hidden_NH, weight_VH, targets_N, elements)  # kernels are chosen
        watch = Watch(rig)
        for _ in range(_TIMES):
            gradients = head_gradients(hidden_NH, weight_VH, targets_N, elements)
        measured = {"s": watch.seconds() / _TIMES, **peak_gib(rig)}
        # Of a few positions only: the whole in float32 would need another 20 GiB.
        few = slice(0, min(256, shape.positions))
        exact = head_gradients(hidden_NH[few].float(), weight_VH.float(), targets_N[few], 2**24)
        ours = gradients if shape.positions <= 256 else None
        if ours is None:
            ours = head_gradients(hidden_NH[few], weight_VH, targets_N[few], elements)
        for name, mine, theirs in zip(("hidden", "weight"), ours, exact, strict=True):
            difference = (mine.float() - theirs).norm() / theirs.norm()
            measured[f"{name}_error"] = float(difference)
        numbers |= named(f"2e{elements.bit_length() - 1}", measured)
        limit = 1e-4 if rig.dtype == "float32" else 0.02
        worst = max(measured["hidden_error"], measured["weight_error"])
        require(worst < limit, f"a gradient is off by {worst:.2g} of its length", numbers)
        del gradients, ours, exact
    return numbers


def head_gradients(
    hidden_NH: Tensor, weight_VH: Tensor, targets_N: Tensor, elements: int
) -> tuple[Tensor, Tensor]:
    """Gradients of the sum of all log-probabilities with respect to hidden states and weight."""
    hidden_NH = hidden_NH.detach().requires_grad_()
    weight_VH = weight_VH.detach().requires_grad_()
    logprobs_N, _ = token_logprobs(
        hidden_NH,
        targets_N,
        head=LinearHead(weight_VH),
        temperature=1.0,
        slice_rows=max(1, elements // weight_VH.shape[0]),
    )
    logprobs_N.sum().backward()
    assert hidden_NH.grad is not None
    assert weight_VH.grad is not None
    return hidden_NH.grad, weight_VH.grad


def update_memory(rig: Rig) -> Numbers:
    """Nothing is offloaded: what the device holds before and after an update, and after the phase
    has given cached memory back, which engines that wake need."""
    with engine(rig) as policy:
        policy.update([rig.batch()])
        fresh(rig)
        before = used_gib(rig)
        policy.update([rig.batch(seed=1)])
        after = used_gib(rig)
        policy.offload()
        given_back = used_gib(rig)
        tensors = policy.memory_bytes() / GIB
        numbers = {
            "before_gib": before,
            "after_gib": after,
            "given_back_gib": given_back,
            "tensors_gib": tensors,
            **peak_gib(rig),
        }
    if rig.device == "cuda":
        require(given_back < before + 0.25, "cached memory was not given back", numbers)
    return numbers


def offload_large(rig: Rig) -> Numbers:
    """The training state goes to host memory and back three times: GiB/s each way, and the host
    memory that it takes there beside its own size."""
    batch = rig.batch()
    with engine(rig, fsdp={"param_offload": True, "optimizer_offload": True}) as policy:
        policy.update([batch])
        before = policy.logprobs(batch)
        state = policy.memory_bytes() / GIB
        host_before = process_memory_bytes() / GIB
        numbers: Numbers = {"state_gib": state}
        for number in (1, 2, 3):
            watch = Watch(rig)
            policy.offload()
            numbers[f"out{number}_s"] = watch.seconds()
            if number == 1:
                numbers["host_gib"] = process_memory_bytes() / GIB - host_before
                if rig.device == "cuda":
                    pinned = torch.cuda.host_memory_stats()["allocated_bytes.current"]
                    numbers["pinned_gib"] = pinned / GIB
            watch = Watch(rig)
            policy.onload()
            numbers[f"in{number}_s"] = watch.seconds()
        after = policy.logprobs(batch)
    same = (before.values == after.values).all()
    require(bool(same), "log-probabilities changed on the way", numbers)
    if rig.device == "cuda":
        message = "host memory grew by more than 1.3 times the state"
        require(numbers["host_gib"] < 1.3 * state + 0.5, message, numbers)
    return numbers


def export_large(rig: Rig) -> Numbers:
    """The file of the weights: GiB/s of writing and of reading, and equal tensors."""
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(rig.folder)
    file = folder / f"rmrl-gpu-check-{Path(rig.folder).name}.safetensors"
    with engine(rig) as policy:
        try:
            free = shutil.disk_usage(folder).free
            if free < 2.5 * policy.memory_bytes():
                raise Skip(f"{folder} has {free / GIB:.1f} GiB free")
            watch = Watch(rig)
            size = policy.export_weights(str(file), "float32") / GIB
            written_s = watch.seconds()
            ours = dict(policy.weights("float32"))
            watch = Watch(rig)
            different = 0
            for name, tensor in read_weights(file):
                on_device = tensor.to(rig.device)
                different += int(not torch.equal(on_device, ours[name].to(rig.device)))
            read_s = watch.seconds()
        finally:
            file.unlink(missing_ok=True)
    numbers = {"gib": size, "write_s": written_s, "read_s": read_s, "different": float(different)}
    require(different == 0, "tensors of the file differ from the model's", numbers)
    return numbers


def ipc_large(rig: Rig) -> Numbers:
    """A tensor above 1 GiB reaches another process by its handle, without a copy."""
    size = 1_200_000_000 // 2 if rig.device == "cuda" else 1_000_000
    context = torch.multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    child: Any = context.Process(target=_receive, args=(theirs,), daemon=True)
    child.start()
    tensor = torch.ones(size, dtype=torch.bfloat16, device=rig.device)
    tensor[-1] = 3.0
    try:
        watch = Watch(rig)
        mine.send(tensor)
        if not mine.poll(_DEADLINE_S):
            require(False, "the other process gave no answer", {})
        last, count = mine.recv()
        numbers = {"gib": tensor.nbytes / GIB, "s": watch.seconds(), "used_gib": used_gib(rig)}
    finally:
        mine.close()
        child.join(30.0)
    message = "the other process sees another tensor"
    require(last == 3.0 and count == size, message, numbers)
    return numbers


def _receive(pipe: Any) -> None:
    tensor = pipe.recv()
    pipe.send((float(tensor[-1]), tensor.numel()))
