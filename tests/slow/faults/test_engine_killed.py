"""A real engine whose process is killed in the middle of its work: it is started again, and the
scores are those of a quiet run."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rmrl.cluster.processes import RayHost, RayProcess
from rmrl.cluster.session import ray_session
from rmrl.errors import EngineLostError
from rmrl.inference.environment import engine_environment
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.types import Sampling
from tests.rewards.parts import judge, make_scorer, rows

pytestmark = [pytest.mark.alone(forks=True), pytest.mark.timeout(600)]

READS = """
def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    return [f"{prompt} {response}" for prompt, response in zip(text_prompts, text_responses, strict=True)]

def rm_postprocess(results):
    return [sum(place * ord(character) for place, character in enumerate(text)) % 9973 for text in results]
"""
"""The score depends on every character of a text of hundreds of tokens."""
INTO_IT = 2
"""Answers, or steps on the way to them, before the engine is killed."""
ANSWERS = 24
"""Two at a time and 300 tokens each: several seconds, on a fast machine too."""


@dataclass
class Watched:
    """A host whose processes can be killed while they generate."""

    host: RayHost
    processes: list[RayProcess] = field(default_factory=list)
    generating: asyncio.Event = field(default_factory=asyncio.Event)
    lost: int = 0

    async def spawn(self, factory: str, settings: Mapping[str, Any], *, name: str) -> Any:
        process = await self.host.spawn(factory, settings, name=name)
        self.processes.append(process)
        return _Watched(self, process)


@dataclass
class _Watched:
    watch: Watched
    process: RayProcess

    async def call(self, method: str, *args: Any, timeout_s: float, **kwargs: Any) -> Any:
        if method == "generate":
            self.watch.generating.set()
        try:
            return await self.process.call(method, *args, timeout_s=timeout_s, **kwargs)
        except EngineLostError:
            self.watch.lost += 1
            raise
        finally:
            if method == "generate":
                self.watch.generating.clear()

    def remember_family(self) -> None:
        self.process.remember_family()

    async def kill(self) -> None:
        await self.process.kill()


async def kill_the_generating(watch: Watched) -> None:
    """SIGKILL, by its process id, once it is well into a call."""
    await watch.generating.wait()
    engine = watch.processes[-1]
    while await engine._progress() < INTO_IT:
        assert watch.generating.is_set(), (
            "the call was over before it could be disturbed: give it more tokens"
        )
        await asyncio.sleep(0.01)
    family = engine.family
    assert family is not None
    process = family.process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


async def test_a_killed_engine_scores_as_if_nothing_had_happened(
    tmp_path: Path, tiny_llama: Path
) -> None:
    from transformers import AutoTokenizer

    engine = EngineSpec(
        path=str(tiny_llama), runner="generate", name="vllm", dtype="float32", max_model_len=512, max_num_seqs=2,
        max_num_batched_tokens=512, tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=64 * 2**20, device="cpu", threads=1,
    )  # fmt: skip
    sampling = Sampling(max_tokens=300, temperature=0.0, ignore_eos=True)
    spec = judge(tmp_path, code=READS, engine=engine, sampling=sampling, timeout_s=240.0)
    answers = rows(*(f"answer {number}" for number in range(ANSWERS)))
    with ray_session({"num_cpus": 2}, processes=1):
        watch = Watched(RayHost(environment=engine_environment(device="cpu", threads=1)))
        scorer = make_scorer([spec], AutoTokenizer.from_pretrained(tiny_llama), host=watch)
        try:
            killer = asyncio.create_task(kill_the_generating(watch))
            disturbed = await scorer.score(answers)
            await killer
            assert (len(watch.processes), watch.lost) == (2, 1)
            quiet = await scorer.score(answers)
            assert (len(watch.processes), watch.lost) == (2, 1)
        finally:
            await scorer.close()
    assert disturbed.scores.status_BC[:, 0].tolist() == ["ok"] * ANSWERS
    assert len(set(disturbed.rewards_B)) > 1
    assert disturbed.rewards_B.tolist() == quiet.rewards_B.tolist()
    assert [r.raw_text for r in disturbed.scores.results[0]] == [
        r.raw_text for r in quiet.scores.results[0]
    ]
