"""A real judge on vLLM: scores by token probability beside a reference, and structured output that
is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult
from tests.engine_process import run_in_engine_process
from tests.rewards.kinds.scripted import context

SCHEMA = (
    '{"type": "object", "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}},'
    ' "required": ["score"]}'
)
REASONED = (
    '{"type": "object", "properties": {"reason": {"type": "string", "minLength": 20, "maxLength":'
    ' 60}, "score": {"type": "integer", "minimum": 1, "maximum": 5}}, "required": ["reason",'
    ' "score"]}'
)
ROWS = [
    ("What is the capital of France?", "Paris."),
    ("What is the capital of France?", "I like trains."),
    ("Say hello.", "Hello there!"),
]


def scenario(path: str, meta_path: str) -> dict[str, Any]:
    from rmrl.inference.hf.reward_engine import HFEngine
    from rmrl.inference.vllm.reward_engine import VLLMEngine

    engine = VLLMEngine(
        EngineSpec(
            path=path, runner="generate", name="vllm", dtype="float32", max_model_len=768, max_num_seqs=8, max_num_batched_tokens=1024,
            tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=128 * 2**20, device="cpu", threads=1,
        )
    )  # fmt: skip
    engine.start()
    meta = HFEngine(
        EngineSpec(
            path=meta_path, runner="pooling", name="hf", dtype="float32", max_model_len=512, max_num_seqs=8, max_num_batched_tokens=1024,
            tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=1, device="cpu", threads=1,
        )
    )  # fmt: skip
    meta.start()
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
        "asked": _scored(
            engine,
            Sampling(max_tokens=96, temperature=0.0, stop=(".",)),
            {"rubric": "Is it right?", "verdict": "expect", "fence": False},
        ),
        "meta": _scored(
            engine,
            Sampling(max_tokens=80, temperature=1.0, n=4, seed=1, json_schema=REASONED),
            {
                "rubric": "Is it right?",
                "scale": [1, 5],
                "fence": False,  # a quotation of it is not read
                "meta": {"path": meta_path, "keep": 2},
            },
            meta=meta,
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


def _scored(
    engine: Any, sampling: Sampling, options: dict[str, Any], *, meta: Any = None
) -> list[ScoreResult]:
    from transformers import AutoTokenizer

    engines = {"main": engine} if meta is None else {"main": engine, "meta": meta}
    spec = RewardSpec(
        name="r",
        kind="generative",
        weight=1.0,
        engines={role: each.spec for role, each in engines.items()},
        sampling=sampling,
        options=GenerativeReward.Options(**options),
    )
    asked = context(None)
    asked.tokenizer = AutoTokenizer.from_pretrained
    asked.calls = {role: _Direct(each) for role, each in engines.items()}
    return asyncio.run(GenerativeReward.from_spec(spec, asked).score(_items()))


def _items() -> list[ScoreItem]:
    return [
        ScoreItem(prompt_id=p, messages=[{"role": "user", "content": p}], response=r, rm_prompt=p)
        for p, r in ROWS
    ]


def _next_tokens(path: Path) -> Callable[[str, Sequence[str]], list[float]]:
    """(text, tokens) -> the probability of each token behind the text, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def probabilities(text: str, tokens: Sequence[str]) -> list[float]:
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            by_id = model(ids).logits[0, -1].softmax(dim=-1)
        return [float(by_id[tokenizer.convert_tokens_to_ids(token)]) for token in tokens]

    return probabilities


def _relevance(path: Path, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The logit of each pair, by transformers."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
    values: list[float] = []
    for pair in pairs:
        with torch.no_grad():
            values.append(float(model(**tokenizer(*pair, return_tensors="pt")).logits[0, 0]))
    return values


def _check_chosen(results: Sequence[ScoreResult], meta: Path) -> None:
    """The votes that count are the two whose critiques the real model scores highest."""
    for result, (prompt, response) in zip(results, ROWS, strict=True):
        assert result.status == "ok", result
        texts = result.raw_text.split("\n---\n")
        readable = [i for i, vote in enumerate(result.extra["votes"]) if vote is not None]
        assert len(readable) > 2, texts
        question = result.rendered.partition("<|im_start|>user\n")[2].rpartition("<|im_end|>")[0]
        assert prompt in question
        assert response in question
        expected = _relevance(meta, [(question, texts[i]) for i in readable])
        assert [result.extra["meta"][i] for i in readable] == pytest.approx(expected, abs=1e-4), (
            texts
        )
        best = sorted(zip(expected, readable, strict=True), reverse=True)[:2]
        kept = sorted(i for _, i in best)
        assert [i for i, counts in enumerate(result.extra["kept"]) if counts] == kept
        votes = [result.extra["votes"][i] for i in kept]
        assert result.extra["on_scale"] == sum(votes) / 2
        assert result.value == pytest.approx((result.extra["on_scale"] - 1) / 4)
    assert len({round(v, 3) for r in results for v in r.extra["meta"] if v is not None}) > 6


def test_a_real_judge(smollm2: Path, ms_marco: Path):
    found = run_in_engine_process(scenario, str(smollm2), str(ms_marco))
    _check_chosen(found["meta"], ms_marco)
    next_tokens = _next_tokens(smollm2)
    # The levels behind each text are as likely as transformers says.
    for result in found["asked"]:
        assert result.status == "ok", result
        text = f"{result.rendered}{result.raw_text.rstrip()}\n\nScore: "
        masses = next_tokens(text, "0123456789")
        (then_zero,) = next_tokens(f"{text}1", "0")
        masses += [masses[1] * then_zero]
        masses[1] *= 1 - then_zero
        assert result.extra["label_mass"] == pytest.approx(sum(masses), abs=1e-3)
        mean = sum(level * mass for level, mass in enumerate(masses)) / sum(masses)
        assert result.extra["on_scale"] == pytest.approx(mean, abs=5e-3)
    assert len({result.value for result in found["asked"]}) == len(found["asked"])
    tokens = found["tokens"]
    for result in tokens:
        yes, no = next_tokens(result.rendered, ("Yes", "No"))
        assert result.value == pytest.approx(yes / (yes + no), abs=2e-4)
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
