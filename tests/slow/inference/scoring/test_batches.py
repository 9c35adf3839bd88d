"""In float32 on CPU nothing that vLLM says of a row depends on what else is in its batch, to the
last bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest, PoolingRequest
from rmrl.types import Sampling
from tests.engine_process import run_in_engine_process

GIVEN: dict[str, Any] = {
    "name": "vllm", "dtype": "float32", "max_model_len": 512, "max_num_seqs": 32, "max_num_batched_tokens": 1024, "tensor_parallel_size": 1,
    "gpu_memory_utilization": 0.5, "kv_cache_bytes": 64 * 2**20, "device": "cpu", "threads": 1,
}  # fmt: skip
SIZES = (1, 3, 12)
RUBRIC = (
    "Is the sum right? Read it twice, add the numbers up yourself, and reply with one word, Yes or"
    " No. " * 8
)
"""Long enough for a block of the prefix cache."""


def by_size(
    compute: Callable[[list[Any]], list[Any]], requests: Sequence[Any]
) -> dict[int, list[Any]]:
    """The results in batches of each size."""
    results: dict[int, list[Any]] = {}
    for size in SIZES:
        results[size] = [
            result
            for start in range(0, len(requests), size)
            for result in compute(list(requests[start : start + size]))
        ]
    return results


def replies() -> list[tuple[str, str]]:
    draw = random.Random(0)
    sums = [(draw.randint(1, 99), draw.randint(1, 99)) for _ in range(12)]
    return [
        (f"What is {a} + {b}?", f"{a} plus {b} is {a + b}. " * draw.randint(1, 12)) for a, b in sums
    ]


def scalars(path: str) -> dict[int, list[Any]]:
    from transformers import AutoTokenizer

    from rmrl.inference.vllm.reward_engine import VLLMEngine

    engine = VLLMEngine(EngineSpec(path=path, runner="pooling", **GIVEN))
    engine.start()
    tokenizer = AutoTokenizer.from_pretrained(path)
    pairs = [tokenizer(question, reply) for question, reply in replies()]
    requests = [
        PoolingRequest(tuple(pair["input_ids"]), tuple(pair["token_type_ids"])) for pair in pairs
    ]
    return by_size(lambda batch: [output.value for output in engine.classify(batch)], requests)


def verdicts(path: str) -> list[dict[int, list[Any]]]:
    """Log-probabilities of Yes and No, those of the tokens of greedy texts, and the latter once
    more after the deepest sleep."""
    from transformers import AutoTokenizer

    from rmrl.inference.vllm.reward_engine import VLLMEngine

    engine = VLLMEngine(EngineSpec(path=path, runner="generate", **GIVEN))
    engine.start()
    tokenizer = AutoTokenizer.from_pretrained(path)
    words = tuple(tokenizer.encode(word, add_special_tokens=False)[0] for word in ("Yes", "No"))
    ids = [
        tuple(tokenizer.encode(f"{RUBRIC}\n{question}\n{reply}\nVerdict:"))
        for question, reply in replies()
    ]
    first = [
        GenerateRequest(row, Sampling(max_tokens=1, temperature=0.0), choice_tokens=words)
        for row in ids
    ]
    results = [
        by_size(
            lambda batch: [output[0].choice_logprobs for output in engine.generate(batch)], first
        )
    ]
    results.append(by_size(lambda batch: written(engine, batch), ids))
    engine.sleep(2)
    engine.wake()
    results.append({max(SIZES): written(engine, ids)})
    return results


def written(engine: Any, prompts: Sequence[tuple[int, ...]]) -> list[list[float]]:
    """Log-probabilities of the 6 tokens that follow each prompt; texts alone would hide what moves
    by less than a choice."""
    from vllm import SamplingParams

    greedy = SamplingParams(temperature=0.0, max_tokens=6, logprobs=0, ignore_eos=True)
    answers = engine._llm.generate(
        [{"prompt_token_ids": list(prompt)} for prompt in prompts], greedy, use_tqdm=False
    )
    return [
        [next(iter(position.values())).logprob for position in answer.outputs[0].logprobs]
        for answer in answers
    ]


def all_equal(results: dict[int, list[Any]]) -> bool:
    assert len(set(map(str, results[1]))) > 5  # rows that are all alike would agree by themselves
    return all(results[size] == results[1] for size in SIZES)


def test_a_logit_does_not_depend_on_its_batch(ms_marco: Path) -> None:
    assert all_equal(run_in_engine_process(scalars, str(ms_marco)))


def test_a_verdict_does_not_depend_on_its_batch(smollm2: Path) -> None:
    first, later, woken = run_in_engine_process(verdicts, str(smollm2), timeout_s=540.0)
    assert all_equal(first)
    assert all_equal(later)
    assert woken[max(SIZES)] == later[max(SIZES)]
