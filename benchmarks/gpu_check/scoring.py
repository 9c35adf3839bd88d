"""Checks of reward engines: scores that must not depend on what else is in their batch, bit-equal
between batch sizes; answers that are read from logits in float32."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_check.model import write_scorer
from benchmarks.gpu_check.rig import Numbers, Rig, Skip, require
from benchmarks.gpu_check.training import on_cuda
from rmrl.inference.environment import engine_environment
from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest, PoolingRequest, Runner
from rmrl.types import Sampling

ROWS = 64
SIZES = (8, 32, ROWS)
"""Batch sizes that are compared with batches of 1."""
CHOICES = (5, 6)
"""Tokens whose log-probabilities a judge is read by."""
ANSWERS = tuple(range(100, 140))
GRID = 2.0**-14
"""bfloat16 holds logits above 2^-6 in multiples of this, float16 those above 2^-4."""


def vllm_invariant_judge(rig: Rig) -> Numbers:
    """engine.batch_invariant: log-probabilities of two words and greedy texts of a judge are
    bit-equal in batches of 1 to 64."""
    engine = _engine(rig, "generate", rig.model)
    first = [
        GenerateRequest(row, Sampling(max_tokens=1, temperature=0.0), choice_tokens=CHOICES)
        for row in _rows()
    ]
    whole = [
        GenerateRequest(row, Sampling(max_tokens=16, temperature=0.0, ignore_eos=True))
        for row in _rows()
    ]
    words = _moved(
        lambda batch: [output[0].choice_logprobs for output in engine.generate(batch)], first
    )
    texts = _moved(lambda batch: [output[0].text for output in engine.generate(batch)], whole)
    numbers = {f"logprobs_{size}": count for size, count in words.items()} | {
        f"texts_{size}": count for size, count in texts.items()
    }
    require(not any(numbers.values()), "rows differ between batch sizes", numbers)
    return numbers


def vllm_invariant_scalar(rig: Rig) -> Numbers:
    """engine.batch_invariant: the logits of a scalar model are bit-equal in batches of 1 to 64."""
    engine = _engine(rig, "pooling", str(write_scorer(rig.model, Path(rig.folder) / "scorer")))
    requests = [PoolingRequest(row) for row in _rows()]
    numbers = _moved(lambda batch: [output.value for output in engine.classify(batch)], requests)
    require(not any(numbers.values()), "rows differ between batch sizes", numbers)
    return numbers


def vllm_answers(rig: Rig) -> Numbers:
    """A judge in half precision is read by logits in float32: they are on no grid, and near those
    that `hf` reads."""
    if rig.dtype == "float32":
        raise Skip("of half precision alone")
    read = Sampling(max_tokens=1, temperature=0.0)
    requests = [GenerateRequest(row, read, choice_tokens=ANSWERS) for row in _rows()]
    values_RA: dict[str, np.ndarray] = {}
    for name in ("vllm", "hf"):
        engine = _engine(rig, "generate", rig.model, name=name, batch_invariant=False)
        values_RA[name] = np.asarray(
            [texts[0].choice_logprobs for texts in engine.generate(requests)]
        )
        engine.sleep(2)
    steps = (values_RA["vllm"][:, 1:] - values_RA["vllm"][:, :1]) / GRID
    numbers = {
        "on_grid": float((np.abs(steps - steps.round()) < 0.1).mean()),
        "from_hf": float(np.abs(values_RA["vllm"] - values_RA["hf"]).mean()),
    }
    require(numbers["on_grid"] < 0.5, "the logits are rounded", numbers)
    require(numbers["from_hf"] < 0.1, "hf reads other answers", numbers)
    return numbers


def _engine(
    rig: Rig, runner: Runner, path: str, *, name: str = "vllm", batch_invariant: bool = True
) -> Any:
    if batch_invariant:
        on_cuda(rig)
    if importlib.util.find_spec("vllm") is None:
        raise Skip("vLLM is not installed")
    os.environ.update(
        engine_environment(device=rig.device, threads=rig.threads, batch_invariant=batch_invariant)
    )
    from rmrl.inference.reward_engines import build_engine

    spec = EngineSpec(
        path=path, runner=runner, name=name, dtype=rig.dtype, max_model_len=1024, max_num_seqs=ROWS, max_num_batched_tokens=8192,
        tensor_parallel_size=1, gpu_memory_utilization=0.3, kv_cache_bytes=2**28, device=rig.device, threads=rig.threads, batch_invariant=batch_invariant,
    )  # fmt: skip
    engine = build_engine(spec)
    engine.start()
    return engine


def _rows() -> list[tuple[int, ...]]:
    """Token ids of many lengths; the first 200 are the same in every second row, as those of a
    rubric are."""
    draw = np.random.default_rng(0)
    shared = draw.integers(4, 1000, 200).tolist()
    tails = [draw.integers(4, 1000, int(length)).tolist() for length in draw.integers(8, 600, ROWS)]
    return [tuple((shared if row % 2 else []) + tail) for row, tail in enumerate(tails)]


def _moved(compute: Callable[[list[Any]], list[Any]], requests: Sequence[Any]) -> Numbers:
    """Batch size -> rows whose result is not that of a batch of 1."""

    def cut(size: int) -> list[Any]:
        return [
            result
            for start in range(0, len(requests), size)
            for result in compute(list(requests[start : start + size]))
        ]

    alone = cut(1)
    return {
        str(size): float(sum(a != b for a, b in zip(cut(size), alone, strict=True)))
        for size in SIZES
    }
