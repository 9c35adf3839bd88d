"""Checks of the rollout engines: what they sample, its log-probabilities, new weights, sleep."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_check.model import Plain
from benchmarks.gpu_check.rig import Numbers, Rig, Skip, apart, require
from benchmarks.gpu_check.training import FLOOR, as_near, engine
from rmrl.config.schema import RolloutConfig
from rmrl.inference.environment import engine_environment
from rmrl.inference.rollout import build_engine
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.types import Generation, Ragged, Sampling, TrainBatch

PROMPTS, N = 4, 2


def hf_rollout(rig: Rig) -> Numbers:
    """transformers' generate: its log-probabilities, and those of the training engine on its
    samples, are near the truth."""
    return asyncio.run(_sampled_and_recomputed(rig, "hf"))


def hf_publish(rig: Rig) -> Numbers:
    """Published weights are the ones that sample."""
    return asyncio.run(_published(rig, "hf"))


def vllm_rollout(rig: Rig) -> Numbers:
    """vLLM: its log-probabilities, and those of the training engine on its samples, are near the
    truth."""
    _needs_vllm(rig)
    return asyncio.run(_sampled_and_recomputed(rig, "vllm"))


def vllm_publish(rig: Rig) -> Numbers:
    """Weights published to vLLM, awake and from the deepest sleep, are the ones that sample."""
    _needs_vllm(rig)
    return asyncio.run(_published(rig, "vllm"))


def vllm_float32_head(rig: Rig) -> Numbers:
    """With logits in float32 on both sides, vLLM and the training engine are as near to each other
    as with rounded ones, or nearer."""
    if rig.dtype == "float32":
        raise Skip("of half precision alone")
    _needs_vllm(rig)
    numbers = {
        name: asyncio.run(_between(rig, float32_head=wide))
        for name, wide in (("rounded", False), ("float32", True))
    }
    require(numbers["float32"] <= 1.1 * numbers["rounded"], "they are farther apart", numbers)
    return numbers


def vllm_sleep(rig: Rig) -> Numbers:
    """Sleep frees memory at both levels, and the woken engine samples what it sampled before."""
    _needs_vllm(rig)
    return asyncio.run(_slept(rig))


def _needs_vllm(rig: Rig) -> None:
    if importlib.util.find_spec("vllm") is None:
        raise Skip("vLLM is not installed")
    os.environ.update(engine_environment(device=rig.device, threads=rig.threads))


@asynccontextmanager
async def _rollout(rig: Rig, name: str, **decided: Any) -> AsyncIterator[Any]:
    config = RolloutConfig(
        name=name, dtype=rig.dtype, max_num_seqs=16, max_num_batched_tokens=2048, kv_cache_bytes=64 * 2**20,
        gpu_memory_utilization=0.3, timeout_s=600.0,
    )  # fmt: skip
    settings = RolloutEngineSettings.of(
        config, path=rig.model, tokenizer=None, device=rig.device, threads=rig.threads, max_model_len=2 * rig.longest + 8,
        trust_remote_code=False, **decided,
    )  # fmt: skip
    made: Any = build_engine(name, settings)
    await made.start()
    try:
        yield made
    finally:
        await made.shutdown()


def _prompts(rig: Rig) -> list[list[int]]:
    return [row[:8].tolist() for row in rig.batch().tokens.rows()[:PROMPTS]]


async def _sample(made: Any, rig: Rig, **changed: Any) -> list[Generation]:
    given: dict[str, Any] = {
        "max_tokens": rig.longest,
        "temperature": rig.temperature,
        "n": N,
        "seed": 3,
        "ignore_eos": True,
    }
    found = [g async for g in made.generate(_prompts(rig), Sampling(**(given | changed)))]
    return sorted(found, key=lambda g: (g.prompt_index, g.sample_index))


def _rows(
    rig: Rig, found: Sequence[Generation]
) -> tuple[list[tuple[list[int], list[int]]], Ragged, TrainBatch]:
    """(prompt, response) of each sample, its log-probabilities, and the samples as the training
    engine takes them."""
    rows = [(_prompts(rig)[g.prompt_index], list(g.token_ids)) for g in found]
    said = Ragged.of([() if g.logprobs is None else g.logprobs for g in found], np.float32)
    mask = Ragged.of([np.ones(len(response)) for _, response in rows], np.float32)
    return (
        rows,
        said,
        TrainBatch(
            tokens=Ragged.of([p + r for p, r in rows], np.int64),
            response_mask=mask,
            advantages=mask,
        ),
    )


async def _sampled_and_recomputed(rig: Rig, name: str) -> Numbers:
    async with _rollout(rig, name) as made:
        found = await _sample(made, rig)
    rows, said, batch = _rows(rig, found)
    lengths = {len(response) for _, response in rows}
    require(
        len(found) == PROMPTS * N and lengths == {rig.longest},
        "samples are missing or short",
        {"samples": float(len(found))},
    )
    truth, plain = (
        Plain(rig.model, rig.device, dtype).logprobs(rows, rig.temperature)
        for dtype in ("float32", rig.dtype)
    )
    numbers = as_near(said, plain, truth, rig.dtype)
    with engine(rig) as policy:
        trained = policy.logprobs(batch)
    as_near(trained, plain, truth, rig.dtype)
    return numbers | {f"training_{key}": value for key, value in apart(said, trained).items()}


async def _between(rig: Rig, *, float32_head: bool) -> float:
    """Mean difference between vLLM's log-probabilities and the training engine's."""
    async with _rollout(rig, "vllm", float32_head=float32_head) as made:
        found = await _sample(made, rig)
    _, said, batch = _rows(rig, found)
    with engine(rig, model={"float32_head": float32_head}) as policy:
        return apart(said, policy.logprobs(batch))["mean"]


async def _published(rig: Rig, name: str) -> Numbers:
    file = Path(rig.folder) / "weights.safetensors"
    numbers: Numbers = {}
    with engine(rig) as policy:
        async with _rollout(rig, name) as made:
            for version, asleep in enumerate((False, True), start=1):
                for _ in range(4):
                    policy.update([rig.batch(seed=version)])
                if asleep:
                    await made.sleep(2)
                sent = policy.export_weights(str(file), rig.dtype)
                await made.load_weights(str(file), version=version)
                if asleep:
                    await made.wake()
                numbers |= await _agree(made, policy, rig, version)
    return numbers | {"file_mib": sent / 2**20}


async def _agree(made: Any, policy: Any, rig: Rig, version: int) -> Numbers:
    """The rollout engine has the policy's weights, and not those it began with."""
    found = await _sample(made, rig)
    rows, said, batch = _rows(rig, found)
    now, old = (
        apart(said, policy.logprobs(batch)),
        apart(said, Plain(rig.model, rig.device).logprobs(rows, rig.temperature)),
    )
    numbers = {f"version{version}_apart": now["mean"], f"version{version}_from_first": old["mean"]}
    require(
        {g.policy_version for g in found} == {version}, "samples carry another version", numbers
    )
    require(
        now["mean"] <= 3 * FLOOR[rig.dtype],
        "the rollout engine samples from other weights than those published",
        numbers,
    )
    require(
        old["mean"] > 5 * now["mean"], "the weights did not move enough for this check", numbers
    )
    return numbers


async def _slept(rig: Rig) -> Numbers:
    numbers: Numbers = {}
    async with _rollout(rig, "vllm") as made:
        before = await _sample(made, rig, temperature=0.0, n=1)
        for level in (1, 2):
            awake = await made.resident_bytes()
            await made.sleep(level)
            asleep = await made.resident_bytes()
            await made.wake()
            after = await _sample(made, rig, temperature=0.0, n=1)
            numbers |= {f"awake{level}_mib": awake / 2**20, f"asleep{level}_mib": asleep / 2**20}
            require(asleep < awake - 32 * 2**20, f"sleep({level}) freed less than 32 MiB", numbers)
            require(
                [g.token_ids for g in after] == [g.token_ids for g in before],
                f"other samples after sleep({level})",
                numbers,
            )
    return numbers
