"""Checks of vLLM's engines on one device: what sleep leaves there, engines and a trainer that take
turns, and the speed of decoding."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.gauges import Watch, used_gib
from benchmarks.gpu_check.rig import Numbers, Rig, Skip, apart, require
from benchmarks.gpu_check.training import FLOOR, engine
from rmrl.config.schema import RolloutConfig
from rmrl.inference.environment import engine_environment
from rmrl.inference.rollout import build_engine
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.vllm import compat
from rmrl.types import Ragged, Sampling, TrainBatch

BATCHES = {"cuda": (64, 256, 512), "cpu": (4, 8)}
"""Samples decoded at once."""
TOKENS = {"cuda": 256, "cpu": 8}
ROUNDS = 3


def needs_vllm(rig: Rig) -> None:
    """Raise Skip without vLLM; else prepare the environment of an engine in this process."""
    if importlib.util.find_spec("vllm") is None:
        raise Skip("vLLM is not installed")
    os.environ.update(engine_environment(device=rig.device, threads=rig.threads))


@asynccontextmanager
async def rollout(
    rig: Rig, *, share: float = 0.3, seqs: int = 16, **kwargs: Any
) -> AsyncIterator[Any]:
    """A rollout engine of this process with `share` of the device; `kwargs`: arguments of vLLM."""
    config = RolloutConfig(
        name="vllm", dtype=rig.dtype, max_num_seqs=seqs, max_num_batched_tokens=8192,
        kv_cache_bytes=2**26, gpu_memory_utilization=share, timeout_s=600.0,
        enforce_eager=False, engine_kwargs={"vllm": kwargs}, seed_per_sample=True,
    )  # fmt: skip
    settings = RolloutEngineSettings.of(
        config, path=rig.model, tokenizer=None, device=rig.device, threads=rig.threads,
        max_model_len=2 * rig.longest + 8, trust_remote_code=False,
    )  # fmt: skip
    made: Any = build_engine("vllm", settings)
    await made.start()
    try:
        yield made
    finally:
        await made.shutdown()


async def sampled(
    made: Any, *, count: int, tokens: int, temperature: float = 1.0, seed: int | None = 1
) -> tuple[int, list[Any]]:
    """Sample `count` responses of `tokens` tokens; return the number of tokens and the samples."""
    sampling = Sampling(
        max_tokens=tokens, temperature=temperature, n=count, seed=seed, ignore_eos=True
    )
    samples = [sample async for sample in made.generate([[5, 6, 7, 8]], sampling)]
    return sum(len(sample.token_ids) for sample in samples), samples


def vllm_graphs_sleep(rig: Rig) -> Numbers:
    """What sleep leaves on the device, at levels 1 and 2, with CUDA graphs that are given back."""
    needs_vllm(rig)
    if not compat.offloads_graphs():
        since = compat.GRAPH_OFFLOAD_SINCE
        raise Skip(f"vLLM {compat.installed_version()} keeps its graphs, {since} gives them back")
    return asyncio.run(_asleep(rig))


def vllm_graphs_kept_sleep(rig: Rig) -> Numbers:
    """The same with CUDA graphs that stay."""
    if rig.device != "cuda":
        raise Skip("of CUDA alone")
    needs_vllm(rig)
    return asyncio.run(_asleep(rig, sleep_mode_offload_cudagraph=False))


async def _asleep(rig: Rig, **kwargs: Any) -> Numbers:
    numbers: Numbers = {"before_gib": used_gib(rig)}
    async with rollout(rig, **kwargs) as made:
        await sampled(made, count=4, tokens=4)
        numbers["awake_gib"] = used_gib(rig)
        for level in (1, 2):
            watch = Watch(rig)
            await made.sleep(level)
            numbers[f"sleep{level}_s"] = watch.seconds()
            numbers[f"asleep{level}_gib"] = used_gib(rig)
            watch = Watch(rig)
            await made.wake()
            numbers[f"wake{level}_s"] = watch.seconds()
            await sampled(made, count=4, tokens=4)
    if rig.device == "cuda":
        left = numbers["asleep2_gib"] - numbers["before_gib"]
        require(left < 3.0, f"{left:.1f} GiB stay on the device", numbers)
    return numbers


def vllm_decode(rig: Rig) -> Numbers:
    """Milliseconds of a decoding step and tokens a second by number of samples at once, the
    engine's Python included, with a seed for every sample and without one."""
    needs_vllm(rig)
    return asyncio.run(_decoded(rig))


async def _decoded(rig: Rig) -> Numbers:
    numbers: Numbers = {}
    tokens = TOKENS[rig.device]
    async with rollout(rig, share=0.6, seqs=max(BATCHES[rig.device])) as made:
        for count in BATCHES[rig.device]:
            await sampled(made, count=count, tokens=4)
            for name, seed in (("", 1), ("unseeded_", None)):
                watch = Watch(rig)
                total, _ = await sampled(made, count=count, tokens=tokens, seed=seed)
                seconds = watch.seconds()
                numbers[f"{name}ms_per_step_{count}"] = 1000 * seconds / tokens
                numbers[f"{name}tokens_per_s_{count}"] = total / seconds
    return numbers


def vllm_turns(rig: Rig) -> Numbers:
    """A trainer, and a rollout engine that takes 0.3 of the device, for three rounds of sample,
    sleep, update, publish and wake: memory in each of them and log-probabilities after it."""
    needs_vllm(rig)
    return asyncio.run(_turns(rig))


async def _turns(rig: Rig) -> Numbers:
    numbers: Numbers = {}
    file = Path(rig.folder) / "turns.safetensors"
    with engine(rig) as policy:
        policy.offload()
        async with rollout(rig) as made:
            for number in range(ROUNDS):
                _, samples = await sampled(
                    made, count=8, tokens=min(16, rig.longest), temperature=rig.temperature
                )
                numbers[f"sampled{number}_gib"] = used_gib(rig)
                await made.sleep(2)
                numbers[f"asleep{number}_gib"] = used_gib(rig)
                policy.onload()
                batch = _batch(samples)
                distance = apart(
                    Ragged.of([sample.logprobs for sample in samples], "float32"),
                    policy.logprobs(batch),
                )["mean"]
                numbers[f"apart{number}"] = distance
                policy.update([rig.batch(seed=number)])
                policy.export_weights(str(file), rig.dtype)
                policy.offload()
                numbers[f"trained{number}_gib"] = used_gib(rig)
                await made.load_weights(str(file), version=number + 1)
                await made.wake()
                limit = 3 * FLOOR[rig.dtype]
                require(distance < limit, "sampling and training disagree", numbers)
    if rig.device == "cuda":
        # The first update loads kernels and takes workspaces, 1.1 GiB on an H200, which stay.
        grew = numbers[f"asleep{ROUNDS - 1}_gib"] - numbers["asleep1_gib"]
        require(grew < 0.5, f"{grew:.1f} GiB more stay asleep after {ROUNDS} rounds", numbers)
    return numbers


def _batch(samples: list[Any]) -> TrainBatch:
    rows = [[5, 6, 7, 8, *sample.token_ids] for sample in samples]
    ones = Ragged.of([[1.0] * len(sample.token_ids) for sample in samples], "float32")
    return TrainBatch(tokens=Ragged.of(rows, "int64"), response_mask=ones, advantages=ones)
