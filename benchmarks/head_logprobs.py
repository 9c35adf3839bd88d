"""Log-probabilities of response tokens from hidden states and the head's matrix, forward and
backward: seconds, peak memory and the error of the gradients, by way of computing them.

    python -m benchmarks.head_logprobs --out benchmarks/results/head_logprobs.json

    linear        rmrl.models.linear_head
    checkpointed  the same slices through the head as a module, each under torch.utils.checkpoint
    whole         log_softmax of all logits at once, by autograd
    torch         torch.nn.functional.linear_cross_entropy in chunks of the same size (no entropy, no
                  temperature); left to itself it takes one position at a time at 152k

Memory: the peak of the resident memory above that of the inputs, in a fresh process per side. Error
of the matrix's gradient: mean distance from float64, relative to the mean of its absolute values.
Seconds: the sides take turns in one process (`--rounds 0`: none are measured).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.result_file import print_and_write
from rmrl.models.linear_head import SLICE_ELEMENTS, LinearHead
from rmrl.models.logprobs import token_logprobs

HIDDEN = 256
CASES = {"4k": (4096, 12_288, 2**19), "152k": (152_064, 330, SLICE_ELEMENTS)}
"""Vocabulary, positions and logits of a slice: 96 slices (as 10k positions of a vocabulary of 152k
take on CPU), and 3."""
SIDES = ("linear", "checkpointed", "whole", "torch")


def inputs(case: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Hidden states, matrix, targets, and a weight for each position (a policy's advantages)."""
    vocab, positions, _ = CASES[case]
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(positions, HIDDEN, generator=generator)
    weight = torch.randn(vocab, HIDDEN, generator=generator) / math.sqrt(HIDDEN)
    return {
        "hidden": hidden.to(dtype).requires_grad_(),
        "weight": weight.to(dtype).requires_grad_(),
        "targets": torch.randint(0, vocab, (positions,), generator=generator),
        "advantages": torch.randn(positions, generator=generator),
    }


def logprobs_of(side: str, tensors: dict[str, Tensor], slice_elements: int) -> Tensor:
    """Log-probabilities of the targets, computed by `side`, so many logits at once."""
    hidden, weight, targets = tensors["hidden"], tensors["weight"], tensors["targets"]
    if side == "whole":
        log_p = nn.functional.linear(hidden, weight).float().log_softmax(-1)
        return log_p.gather(1, targets[:, None])[:, 0]
    if side == "torch":
        functional: Any = nn.functional
        options = torch.nn.LinearCrossEntropyOptions(
            batch_chunk_size=max(1, slice_elements // len(weight))
        )
        return -functional.linear_cross_entropy(
            hidden, weight, targets, reduction="none", options=options
        ).float()
    head: Any = LinearHead(weight)
    if side == "checkpointed":
        head = head.__call__
    vocab = len(weight)
    logprobs, _ = token_logprobs(
        hidden,
        targets,
        head=head,
        temperature=1.0,
        entropy="detached",
        slice_rows=max(1, slice_elements // vocab),
    )
    return logprobs


def run(side: str, tensors: dict[str, Tensor], slice_elements: int) -> float:
    """Seconds of a forward and a backward pass; the gradients are left on the inputs."""
    tensors["hidden"].grad = tensors["weight"].grad = None
    started = time.perf_counter()
    (logprobs_of(side, tensors, slice_elements) * tensors["advantages"]).sum().backward()
    return time.perf_counter() - started


def exact(case: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Gradients in float64 of the same (rounded) inputs, a few positions at a time."""
    tensors = inputs(case, dtype)
    weight = tensors["weight"].detach().double()
    gradient = torch.zeros_like(weight)
    hidden_gradients: list[Tensor] = []
    for start in range(0, len(tensors["targets"]), 100):
        part = slice(start, start + 100)
        hidden = tensors["hidden"].detach()[part].double()
        grad = (hidden @ weight.T).softmax(-1).neg_()
        rows = torch.arange(len(grad))
        grad[rows, tensors["targets"][part]] += 1
        grad.mul_(tensors["advantages"][part, None])
        gradient.addmm_(grad.T, hidden)
        hidden_gradients.append(grad @ weight)
    return {"weight": gradient, "hidden": torch.cat(hidden_gradients)}


def errors(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Mean distance of each gradient from `expected`, relative to its mean absolute value."""
    relative: dict[str, float] = {}
    for name, gradient in expected.items():
        computed = tensors[name].grad
        assert computed is not None
        distance = (computed.double() - gradient).abs().mean() / gradient.abs().mean()
        relative[name] = float(f"{float(distance):.3g}")
    return relative


def peak_mib(side: str, case: str, dtype: str) -> float:
    """Peak of the resident memory of one pass above that of the inputs, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.head_logprobs", "--memory", side, case, dtype]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(output.split()[-1])


def resident_mib(field: str) -> float:
    """Resident memory of this process: now (VmRSS), or its peak (VmHWM). Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def warm_up(dtype: torch.dtype) -> None:
    """Load the kernels of every side."""
    tensors = {
        "hidden": torch.randn(8, HIDDEN, dtype=dtype, requires_grad=True),
        "weight": torch.randn(64, HIDDEN, dtype=dtype, requires_grad=True),
        "targets": torch.arange(8),
        "advantages": torch.ones(8),
    }
    for side in SIDES:
        run(side, tensors, SLICE_ELEMENTS)


def measure_memory(side: str, case: str, dtype: str) -> None:
    """Print the peak of one pass in this process, after a small one that loads the kernels."""
    warm_up(getattr(torch, dtype))
    tensors = inputs(case, getattr(torch, dtype))
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = resident_mib("VmRSS")
    run(side, tensors, CASES[case][2])
    print(resident_mib("VmHWM") - before)


def compare(case: str, dtype: str, rounds: int) -> dict[str, Any]:
    """All figures of one vocabulary in one dtype."""
    warm_up(getattr(torch, dtype))
    tensors = inputs(case, getattr(torch, dtype))
    expected = exact(case, getattr(torch, dtype))
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    relative: dict[str, dict[str, float]] = {}
    for side in SIDES:
        run(side, tensors, CASES[case][2])
        relative[side] = errors(tensors, expected)
    for _ in range(rounds):
        for side in SIDES:
            seconds[side].append(run(side, tensors, CASES[case][2]))
    figures: dict[str, Any] = {}
    for side in SIDES:
        pairs = zip(seconds[side], seconds["linear"], strict=True)
        ratios = [their / our for their, our in pairs]
        figures[side] = {
            "error of gradients": relative[side],
            "peak MiB": round(peak_mib(side, case, dtype)),
        }
        if rounds:
            figures[side] |= {
                "seconds": [round(value, 3) for value in seconds[side]],
                "seconds / linear, by round": [round(ratio, 3) for ratio in ratios],
                "median ratio": round(statistics.median(ratios), 3),
            }
    return figures


def main(arguments: list[str] | None = None) -> None:
    """Measure what is named and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--memory", nargs=3, metavar=("SIDE", "CASE", "DTYPE"))
    options = parser.parse_args(arguments)
    if options.memory:
        measure_memory(*options.memory)
        return
    report: dict[str, Any] = {"threads": torch.get_num_threads(), "hidden": HIDDEN}
    if options.out and options.out.is_file():
        report = json.loads(options.out.read_text(encoding="utf-8"))
    for case in options.cases:
        for dtype in options.dtypes:
            report[f"{case} {dtype}"] = compare(case, dtype, options.rounds)
    print_and_write(report, options.out)


if __name__ == "__main__":
    main()
