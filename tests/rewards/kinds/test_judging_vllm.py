"""A real judge on vLLM: scores by token probability beside a reference, and structured output that
is read."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.scoring_base import EngineSpec
from rmrl.rewards.kinds.generative import GenerativeReward
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult
from tests.engine_process import run_in_engine_process
from tests.rewards.kinds.scripted import context

pytestmark = pytest.mark.slow

SCHEMA = (
    '{"type": "object", "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}},'
    ' "required": ["score"]}'
)
ROWS = [
    ("What is the capital of France?", "Paris."),
    ("What is the capital of France?", "I like trains."),
    ("Say hello.", "Hello there!"),
]


def scenario(path: str) -> dict[str, Any]:
    from rmrl.inference.vllm.scoring import VLLMEngine

    engine = VLLMEngine(
        EngineSpec(
            path=path, runner="generate", name="vllm", dtype="float32", max_model_len=768, max_num_seqs=8, max_num_batched_tokens=1024,
            tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=128 * 2**20, device="cpu", threads=1,
        )
    )  # fmt: skip
    engine.start()
    return {
        "tokens": _scored(
            engine, Sampling(max_tokens=64), {"score_tokens": {"Yes": 1.0, "No": 0.0}}
        ),
        "schema": _scored(
            engine,
            Sampling(max_tokens=48, temperature=0.0, json_schema=SCHEMA),
            {"rubric": "Is it right?", "scale": [1, 5]},
        ),
        "choice": _scored(
            engine, Sampling(max_tokens=4, temperature=1.0, n=3, seed=1, choice=("1", "2", "3")), {}
        ),
    }


class _Direct:
    """A way to an engine in this process."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def submit(
        self, method: str, requests: Sequence[Any], *, deterministic: bool
    ) -> list[Any]:
        return getattr(self._engine, method)(list(requests))


def _scored(engine: Any, sampling: Sampling, options: dict[str, Any]) -> list[ScoreResult]:
    reward = _reward(engine.spec, sampling, options)
    reward._context.calls = {"main": _Direct(engine)}
    return asyncio.run(reward.score(_items()))


def _reward(engine: EngineSpec, sampling: Sampling, options: dict[str, Any]) -> GenerativeReward:
    from transformers import AutoTokenizer

    spec = RewardSpec(
        name="r",
        kind="generative",
        weight=1.0,
        engines={"main": engine},
        sampling=sampling,
        options=GenerativeReward.Options(**options),
    )
    return GenerativeReward.from_spec(spec, context(AutoTokenizer.from_pretrained(engine.path)))


def _items() -> list[ScoreItem]:
    return [
        ScoreItem(prompt_id=p, messages=[{"role": "user", "content": p}], response=r, rm_prompt=p)
        for p, r in ROWS
    ]


def _reference(path: Path, prompts: Sequence[str]) -> list[float]:
    """p(Yes) / (p(Yes) + p(No)) of the next token, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    yes, no = (tokenizer.convert_tokens_to_ids(text) for text in ("Yes", "No"))
    values = []
    for prompt in prompts:
        ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = model(ids).logits[0, -1]
        values.append(1 / (1 + math.exp(float(logits[no] - logits[yes]))))
    return values


def test_a_real_judge(smollm2: Path):
    found = run_in_engine_process(scenario, str(smollm2))
    tokens = found["tokens"]
    assert [r.value for r in tokens] == pytest.approx(
        _reference(smollm2, [r.rendered for r in tokens]), abs=2e-4
    )
    assert all(r.tokens_out == 1 for r in tokens)
    assert len({round(r.value, 6) for r in tokens}) == 3
    for result in found["schema"]:
        assert (result.status, result.extra["on_scale"] in (1, 2, 3, 4, 5)) == ("ok", True), result
        assert result.value == (result.extra["on_scale"] - 1) / 4
    for result in found["choice"]:
        assert result.status == "ok"
        assert set(result.extra["votes"]) <= {1.0, 2.0, 3.0}
        assert result.extra["on_scale"] == pytest.approx(sum(result.extra["votes"]) / 3)
        assert result.value == pytest.approx((result.extra["on_scale"] - 1) / 2)
