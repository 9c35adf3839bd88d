"""Real vLLM against the transformers reference; one process starts all engines, the tests read what it found."""

import math
import os
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import EngineLoadError, RewardError
from rmrl.rewards.engines.base import EngineSpec, GenerateRequest, PoolingRequest
from rmrl.rewards.engines.hf import HFEngine
from rmrl.rewards.engines.vllm import VLLMEngine
from rmrl.types import Sampling
from tests.engine_models import write_bert_scorer, write_headless_scorer, write_llama, write_llama_scorer
from tests.engine_process import run_in_engine_process

pytestmark = pytest.mark.slow

GIVEN: dict[str, Any] = {
    "dtype": "float32", "max_model_len": None, "max_num_seqs": 16, "max_num_batched_tokens": 1024, "tensor_parallel_size": 1,
    "gpu_memory_utilization": 0.5, "kv_cache_bytes": 64 * 2**20, "device": "cpu", "threads": 1,
}  # fmt: skip
GREEDY = Sampling(max_tokens=12, temperature=0.0, ignore_eos=True)
PROMPTS = [tuple((7 * i + 13 * n) % 1000 + 4 for i in range(n)) for n in (5, 40, 3, 150)]
SHORT = [p[:60] for p in PROMPTS]
TYPES = [tuple(int(i >= len(p) // 2) for i in range(len(p))) for p in SHORT]
TOO_LONG = (5,) * 1500


def spec(path: str, runner: Any, name: str = "vllm", **changed: Any) -> EngineSpec:
    return EngineSpec(path=path, runner=runner, name=name, **(GIVEN | changed))


def scenario(lm: str, bt: str, bert: str, headless: str) -> dict[str, Any]:
    return {"lm": _judge(lm), "bt": _scalar(bt), "bert": _pairs(bert), "refused": _refused(headless, lm)}


def _judge(path: str) -> dict[str, Any]:
    engine = VLLMEngine(spec(path, "generate"))
    engine.start()
    requests = [
        *(GenerateRequest(p, GREEDY) for p in PROMPTS),
        GenerateRequest(PROMPTS[0], Sampling(max_tokens=4, n=3, choice=("yes", "no"))),
        GenerateRequest(PROMPTS[1], Sampling(max_tokens=8, regex="[0-9]{3}")),
        GenerateRequest(TOO_LONG, Sampling(max_tokens=4, n=2)),
    ]
    found: dict[str, Any] = {"texts": engine.generate(requests), "sleep": {}}
    for level in (1, 2):
        awake = engine.resident_bytes()
        engine.sleep(level)
        found["sleep"][level] = (engine.ping(), awake - engine.resident_bytes())
        engine.wake()
        found[f"after {level}"] = engine.generate(requests[:4])
    return found


def _scalar(path: str) -> dict[str, Any]:
    engine = VLLMEngine(spec(path, "pooling"))
    engine.start()
    requests = [PoolingRequest(p) for p in PROMPTS]
    found: dict[str, Any] = {
        "batched": engine.classify(requests),
        "shuffled": engine.classify(requests[::-1])[::-1],
        "alone": [engine.classify([r])[0] for r in requests],
        "overlong": engine.classify([requests[0], PoolingRequest(TOO_LONG), requests[1]]),
    }
    engine.sleep(2)
    engine.wake()
    found["woken"] = engine.classify(requests)
    return found


def _pairs(path: str) -> dict[str, Any]:
    engine = VLLMEngine(spec(path, "pooling"))
    engine.start()
    pairs = [PoolingRequest(p, t) for p, t in zip(SHORT, TYPES, strict=True)]
    found = {"pairs": engine.classify(pairs), "plain": engine.classify([PoolingRequest(p) for p in SHORT])}
    found["mixed"] = engine.classify([pairs[0], PoolingRequest(SHORT[1])])
    engine.sleep(2)
    engine.wake()
    return found | {"woken": engine.classify(pairs), "context": engine.context_length}


def _refused(headless: str, lm: str) -> dict[str, str]:
    found = {}
    small = spec(lm, "generate", kv_cache_bytes=2**19)
    for name, kind, engine_spec in (("headless", RewardError, spec(headless, "pooling")), ("no room", EngineLoadError, small)):
        try:
            VLLMEngine(engine_spec).start()
        except kind as error:
            found[name] = str(error)
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    makers = {"lm": write_llama, "bt": write_llama_scorer, "bert": write_bert_scorer, "headless": write_headless_scorer}
    return {name: maker(root / name) for name, maker in makers.items()}


@pytest.fixture(scope="module")
def found(folders: dict[str, Path]) -> dict[str, Any]:
    return run_in_engine_process(scenario, *(str(path) for path in folders.values()))


def reference(path: Path, runner: str) -> HFEngine:
    engine = HFEngine(spec(str(path), runner, name="hf"))
    engine.start()
    return engine


def values(outputs: list[Any]) -> list[float]:
    return [o.value for o in outputs]


def test_greedy_texts_equal_the_reference(folders: dict[str, Path], found: dict[str, Any]) -> None:
    expected = reference(folders["lm"], "generate").generate([GenerateRequest(p, GREEDY) for p in PROMPTS])
    assert found["lm"]["texts"][:4] == expected


def test_structured_output_and_overlong_in_one_batch(found: dict[str, Any]) -> None:
    choice, regex, overlong = found["lm"]["texts"][4:]
    assert len(choice) == 3
    assert {t.text for t in choice} <= {"yes", "no"}
    assert len(regex[0].text) == 3
    assert regex[0].text.isdigit()
    assert [(t.text, t.finish_reason, t.tokens_in) for t in overlong] == [("", "overlong", 1500)] * 2


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_frees_memory_and_wake_restores(found: dict[str, Any], level: int) -> None:
    state, freed = found["lm"]["sleep"][level]
    assert state == f"asleep {level}"
    assert freed > 50 * 2**20  # the KV cache alone is 64 MiB
    assert found["lm"][f"after {level}"] == found["lm"]["texts"][:4]


def test_scalars_equal_the_reference(folders: dict[str, Path], found: dict[str, Any]) -> None:
    expected = values(reference(folders["bt"], "pooling").classify([PoolingRequest(p) for p in PROMPTS]))
    assert max(expected) - min(expected) > 0.1
    for way in ("batched", "shuffled", "alone", "woken"):
        assert values(found["bt"][way]) == pytest.approx(expected, abs=1e-4), way


def test_an_overlong_sequence_harms_no_other(found: dict[str, Any]) -> None:
    first, overlong, second = found["bt"]["overlong"]
    assert values([first, second]) == pytest.approx(values(found["bt"]["batched"][:2]), abs=1e-4)
    assert math.isnan(overlong.value)
    assert (overlong.error, overlong.tokens_in) == ("overlong", 1500)


def test_bert_pairs_equal_the_reference(folders: dict[str, Path], found: dict[str, Any]) -> None:
    engine = reference(folders["bert"], "pooling")
    pairs = values(engine.classify([PoolingRequest(p, t) for p, t in zip(SHORT, TYPES, strict=True)]))
    plain = values(engine.classify([PoolingRequest(p) for p in SHORT]))
    assert found["bert"]["context"] == 64
    assert values(found["bert"]["pairs"]) == pytest.approx(pairs, abs=1e-3)
    assert values(found["bert"]["woken"]) == pytest.approx(pairs, abs=1e-3)
    assert values(found["bert"]["plain"]) == pytest.approx(plain, abs=1e-3)
    assert values(found["bert"]["mixed"]) == pytest.approx([pairs[0], plain[1]], abs=1e-3)
    assert abs(pairs[0] - plain[0]) > 0.01


def test_what_cannot_work_is_refused(folders: dict[str, Path], found: dict[str, Any]) -> None:
    assert str(folders["headless"]) in found["refused"]["headless"]
    assert "score.weight" in found["refused"]["headless"]
    assert "KV cache" in found["refused"]["no room"]  # vLLM's own words: a whole sequence needs 1 MiB


def real_pairs(path: str, requests: list[PoolingRequest]) -> list[float]:
    engine = VLLMEngine(spec(path, "pooling"))
    engine.start()
    return values(engine.classify(requests))


def test_a_real_cross_encoder(ms_marco: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ms_marco)
    question = "How many people live in Berlin?"
    answers = ["Berlin has 3.7 million inhabitants.", "Berlin is known for its museums.", "I like trains.", "Berlin. " * 300]
    encoded = [tokenizer(question, answer) for answer in answers]
    requests = [PoolingRequest(tuple(e["input_ids"]), tuple(e["token_type_ids"])) for e in encoded]
    scores = run_in_engine_process(real_pairs, os.fspath(ms_marco), requests)
    assert scores[:3] == pytest.approx(values(reference(ms_marco, "pooling").classify(requests[:3])), abs=1e-3)
    assert scores[0] > scores[1] > scores[2]
    assert math.isnan(scores[3])  # 512 positions
