"""A real judge of criteria on vLLM: its probabilities are those of a generative reward that reads
the same text, and its prefix cache reads a response once."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.judge.asking import fill, template
from rmrl.rewards.kinds.rubric.reward import RubricReward
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult
from tests.engine_process import run_in_engine_process
from tests.rewards.kinds.scripted import context

CRITERIA = [
    "The response answers what was asked.",
    "The response is polite.",
    "The response is in French.",
]
RESPONSE = "Paris is the capital of France, and has been for a long time. " * 12


class _Direct:
    """A way to an engine in this process."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def submit(self, method: str, requests: Any, *, deterministic: bool) -> list[Any]:
        return getattr(self._engine, method)(list(requests))


def _scored(engine: Any, kind: str, options: Any) -> list[ScoreResult]:
    from transformers import AutoTokenizer

    spec = RewardSpec(
        name="r",
        kind=kind,
        weight=1.0,
        engines={"main": engine.spec},
        sampling=Sampling(max_tokens=8, temperature=0.0),
        options=options,
    )
    made = context(AutoTokenizer.from_pretrained(engine.spec.path))
    made = dataclasses.replace(made, calls={"main": _Direct(engine)})
    prompt = "What is the capital of France?"
    messages = [{"role": "user", "content": prompt}]
    items = [
        ScoreItem(prompt_id="p", messages=messages, response=text, rm_prompt=prompt)
        for text in (RESPONSE, "I like trains. " * 40)
    ]
    return asyncio.run(REWARD_KINDS[kind].from_spec(spec, made).score(items))


def scenario(path: str) -> dict[str, Any]:
    from rmrl.inference.vllm.reward_engine import VLLMEngine

    spec = EngineSpec(
        path=path, runner="generate", name="vllm", dtype="float32", max_model_len=1024, max_num_seqs=8, max_num_batched_tokens=1024,
        tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=256 * 2**20, device="cpu", threads=1,
        kwargs={"enable_prefix_caching": True},
    )  # fmt: skip
    engine = VLLMEngine(spec)
    engine.start()
    found: list[tuple[int, int]] = []
    plain = engine._llm.generate

    def watched(*arguments: Any, **named: Any) -> Any:
        answers = plain(*arguments, **named)
        found.extend((len(a.prompt_token_ids), a.num_cached_tokens) for a in answers)
        return answers

    engine._llm.generate = watched
    results = _scored(engine, "rubric", RubricReward.Options(criteria=CRITERIA))
    shared = list(found)
    question = template("rubric").split("{response}\n\n")[1].removesuffix("{answer}").strip()
    alone: list[list[float]] = []
    for criterion in CRITERIA:
        engine._llm.reset_prefix_cache()
        options = GenerativeReward.Options(
            question=fill(question, {"criterion": criterion}), score_tokens={"No": 0.0, "Yes": 1.0}
        )
        alone.append([result.value for result in _scored(engine, "generative", options)])
    return {"rubric": results, "alone": alone, "cached": shared}


def test_a_real_judge_of_criteria(smollm2: Path):
    found = run_in_engine_process(scenario, str(smollm2))
    for row, result in enumerate(found["rubric"]):
        values = [record["value"] for record in result.extra["criteria"]]
        assert values == pytest.approx([values_of[row] for values_of in found["alone"]], abs=2e-5)
        assert result.value == pytest.approx(sum(values) / 3)
    assert len({round(each, 6) for values in found["alone"] for each in values}) == 6
    # The first request of a response reads it; the others find all of it but the last block.
    for first in (0, 3):
        assert found["cached"][first][1] < 128
        for tokens, cached in found["cached"][first + 1 : first + 3]:
            assert tokens - cached < 128 + 100  # a block on CPU, and the question
            assert cached > tokens / 2
