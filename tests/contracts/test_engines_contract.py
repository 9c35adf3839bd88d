"""The same 64 texts through every engine: alone, together, shuffled and in small batches they must
give the same numbers.

Tolerances, float32 throughout: 1e-5 between the ways of asking one engine on transformers (padding
changes the order of sums), 1e-4 between vLLM and transformers on raw logits and log-probabilities,
1e-5 on vectors of length 1.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

from rmrl.inference.reward_engine_base import (
    EmbedRequest,
    EngineSpec,
    GenerateRequest,
    LogprobsRequest,
    PoolingRequest,
)
from rmrl.inference.reward_engines import build_engine
from rmrl.types import Sampling
from tests.engine_models import (
    write_bert_scorer,
    write_bert_token_scorer,
    write_encoder,
    write_gemma_scorer,
    write_llama,
    write_llama_scorer,
    write_token_scorer,
)
from tests.support import fakes

GIVEN: dict[str, Any] = {
    "dtype": "float32", "max_model_len": None, "max_num_seqs": 16, "max_num_batched_tokens": 1024, "tensor_parallel_size": 1,
    "gpu_memory_utilization": 0.5, "kv_cache_bytes": 64 * 2**20, "device": "cpu", "threads": 1,
}  # fmt: skip
WORDS = (
    "score",
    "this",
    "answer",
    "the reply",
    "is",
    "right",
    "wrong",
    "7",
    "of",
    "10",
    "because",
    "it says",
    "nothing",
    "at all",
)
GREEDY = Sampling(max_tokens=2, temperature=0.0, ignore_eos=True)
END = 2
"""Ends the texts that the ended scorer reads, which is padded with it."""
MODELS: dict[str, Callable[[Path], Path]] = {
    "llama": write_llama, "scorer": write_llama_scorer, "bert": write_bert_scorer, "tokens": write_token_scorer,
    "bert tokens": write_bert_token_scorer, "encoder": write_encoder,
    "gemma scorer": write_gemma_scorer,
    "ended scorer": partial(write_llama_scorer, padding=END),
    "labels": partial(write_llama_scorer, labels=("help", "verbosity", "safe")),
    "bert labels": partial(write_bert_scorer, labels=("bad", "good"), problem_type="regression"),
}  # fmt: skip
CASES = [
    ("generate", "generate", "llama"),
    ("classify", "pooling", "scorer"),
    ("classify", "pooling", "bert"),
    ("classify", "pooling", "ended scorer"),
    ("classify", "pooling", "gemma scorer"),
    ("label_logits", "pooling", "labels"),
    ("label_logits", "pooling", "bert labels"),
    ("label_logits", "pooling", "scorer"),
    ("token_logits", "token_pooling", "tokens"),
    ("token_logits", "token_pooling", "scorer"),
    ("token_logits", "token_pooling", "bert tokens"),
    ("token_logprobs", "generate", "llama"),
    ("embed", "embed", "encoder"),
]
"""(method, runner, model)"""
SHORT = ("bert", "bert tokens", "bert labels", "encoder")
"""Models with 64 positions."""
WAYS = ("together", "shuffled", "alone", "small batches")


def texts(longest: int) -> list[str]:
    """64 texts of 1 to `longest` characters; every fourth begins like the one before it, as the
    responses of one prompt do."""
    draw = random.Random(5)
    found: list[str] = []
    for i in range(64):
        start = found[-1][: longest // 2] if i % 4 == 3 else ""
        words = start + " ".join(draw.choices(WORDS, k=1 + longest // 4))
        found.append(words[: 1 + (i * 37) % longest])
    return found


def token_ids(text: str) -> tuple[int, ...]:
    """As the tokenizer of `tests.engine_models`: a token a character, after four special ones."""
    return tuple(ord(c) - 28 for c in text)


def requests_of(method: str, model: str) -> list[Any]:
    """The 64 texts as requests; models with 64 positions read shorter ones than those with 1024."""
    chosen = texts(60 if model in SHORT else 300)
    if method == "embed":
        return [EmbedRequest(t) for t in chosen]
    ids = [token_ids(t) for t in chosen]
    if model == "ended scorer":
        ids = [(*i, *[END] * (1 + number % 2)) for number, i in enumerate(ids)]
    if method == "generate":
        return [GenerateRequest(i, GREEDY, choice_tokens=(20, 27, 900)) for i in ids]
    if method == "token_logprobs":
        return [LogprobsRequest((5, *i), 1 + len(i) // 2) for i in ids]
    return [
        PoolingRequest(
            i, positions=(len(i) - 1, len(i) // 2, 0) if method == "token_logits" else ()
        )
        for i in ids
    ]


def numbers(method: str, output: Any) -> list[float]:
    """What an output says, as one list of numbers."""
    if method == "generate":
        return [*output[0].choice_logprobs, *map(float, output[0].text.encode())]
    if method == "classify":
        return [output.value]
    if method == "token_logprobs":
        return output.values().tolist()
    if method == "label_logits":
        return list(output.logits)
    return (
        [x for row in output.logits for x in row]
        if method == "token_logits"
        else list(output.vector)
    )


def spec(path: str, runner: Any, name: str) -> EngineSpec:
    return EngineSpec(path=path, runner=runner, name=name, **GIVEN)


def asked(
    name: str, path: str, case: tuple[str, str, str], ways: Sequence[str] = WAYS
) -> dict[str, list[list[float]]]:
    """Way -> the numbers of each text, in the order of the texts."""
    method, runner, model = case
    engine = build_engine(spec(path, runner, name))
    engine.start()
    requests = requests_of(method, model)
    ask = getattr(engine, method)
    order = random.Random(7).sample(range(64), 64)
    back = [order.index(i) for i in range(64)]
    calls: dict[str, Callable[[], list[Any]]] = {
        "together": lambda: ask(requests),
        "shuffled": lambda: [
            outputs[i] for outputs in [ask([requests[i] for i in order])] for i in back
        ],
        "alone": lambda: [ask([r])[0] for r in requests],
        "small batches": lambda: [
            o for start in range(0, 64, 5) for o in ask(requests[start : start + 5])
        ],
    }
    return {way: [numbers(method, o) for o in calls[way]()] for way in ways}


def largest_difference(found: list[list[float]], expected: list[list[float]]) -> float:
    """Over all numbers of all texts; the counts must agree."""
    return max(
        abs(a - b) for f, e in zip(found, expected, strict=True) for a, b in zip(f, e, strict=True)
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    root = tmp_path_factory.mktemp("models")
    return cache(lambda name: str(MODELS[name](root / name)))


@pytest.fixture(scope="module")
def reference(model: Callable[[str], str]) -> Callable[[tuple[str, str, str]], list[list[float]]]:
    """The reference engine's numbers, each text asked alone."""

    def numbers_of(case: tuple[str, str, str]) -> list[list[float]]:
        if case[0] == "embed":
            pytest.importorskip("sentence_transformers")
        name = "sentence_transformers" if case[0] == "embed" else "hf"
        return asked(name, model(case[2]), case, ["alone"])["alone"]

    return cache(numbers_of)


def test_the_texts_differ_in_length_and_share_beginnings() -> None:
    lengths = {len(t) for t in texts(300)}
    assert (len(lengths), min(lengths), max(lengths)) == (64, 1, 297)
    assert (
        sum(
            len(a) > 140 and a[:140] == b[:140]
            for a, b in zip(texts(300), texts(300)[1:], strict=False)
        )
        >= 3
    )


@pytest.mark.parametrize("case", [c for c in CASES if c[0] != "generate"], ids=str)
def test_transformers_engines_do_not_depend_on_the_batch(
    case: tuple[str, str, str], model: Any, reference: Any
) -> None:
    expected = reference(case)
    name = "sentence_transformers" if case[0] == "embed" else "hf"
    found = asked(name, model(case[2]), case, ["together", "shuffled", "small batches"])
    assert {
        way: largest_difference(values, expected) < 1e-5 for way, values in found.items()
    } == dict.fromkeys(found, True)
    assert max(map(max, expected)) - min(map(min, expected)) > 0.1


@pytest.mark.parametrize("scorer", ["scorer", "ended scorer"])
def test_the_score_is_read_where_transformers_reads_it(
    scorer: str, model: Any, reference: Any
) -> None:
    from transformers import AutoModelForSequenceClassification

    classifier = AutoModelForSequenceClassification.from_pretrained(model(scorer)).eval()
    expected: list[list[float]] = []
    for request in requests_of("classify", scorer):
        with torch.no_grad():
            expected.append([classifier(torch.tensor([request.token_ids])).logits.item()])
    assert largest_difference(reference(("classify", "pooling", scorer)), expected) < 1e-5


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_fake_engine_does_not_depend_on_the_batch(case: tuple[str, str, str]) -> None:
    found = asked(fakes.REWARD_ENGINE, "nowhere", case)
    assert all(found[way] == found["alone"] for way in WAYS)


def test_sentence_transformers_is_the_mean_over_the_tokens(model: Any, reference: Any) -> None:
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(model("encoder")).eval()
    with torch.no_grad():
        means = [
            encoder(input_ids=torch.tensor([token_ids(t)])).last_hidden_state[0].mean(0)
            for t in texts(60)
        ]
    expected = [(mean / mean.norm()).tolist() for mean in means]
    assert largest_difference(reference(CASES[-1]), expected) < 1e-5
