"""Checks of reward engines whose scores must not depend on what else is in their batch: bit-equal
between batch sizes."""

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


def _engine(rig: Rig, runner: Runner, path: str) -> Any:
    on_cuda(rig)
    if importlib.util.find_spec("vllm") is None:
        raise Skip("vLLM is not installed")
    os.environ.update(
        engine_environment(device=rig.device, threads=rig.threads, batch_invariant=True)
    )
    from rmrl.inference.vllm.reward_engine import VLLMEngine

    spec = EngineSpec(
        path=path, runner=runner, name="vllm", dtype=rig.dtype, max_model_len=1024, max_num_seqs=ROWS, max_num_batched_tokens=8192,
        tensor_parallel_size=1, gpu_memory_utilization=0.3, kv_cache_bytes=0, device=rig.device, threads=rig.threads, batch_invariant=True,
    )  # fmt: skip
    engine = VLLMEngine(spec)
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
