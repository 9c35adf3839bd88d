import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rmrl.errors import ConfigError, InfrastructureError, RewardError
from rmrl.rewards.engines import build_engine
from rmrl.rewards.engines.base import EngineSpec, GenerateRequest, PoolingRequest
from rmrl.types import Sampling
from tests.engine_models import write_bert_scorer, write_headless_scorer, write_llama, write_llama_scorer

GIVEN: dict[str, Any] = {
    "name": "hf", "dtype": "float32", "max_model_len": None, "max_num_seqs": 3, "max_num_batched_tokens": 64, "tensor_parallel_size": 1,
    "gpu_memory_utilization": 0.5, "kv_cache_bytes": 2**20, "device": "cpu", "threads": 1,
}  # fmt: skip
SEQUENCES = [tuple(range(5, 5 + n)) for n in (9, 3, 17, 1, 30)]


def spec(path: Path, runner: Any) -> EngineSpec:
    return EngineSpec(path=str(path), runner=runner, **GIVEN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def alone(path: Path, sequences: list[tuple[int, ...]], **more: Any) -> list[float]:
    """Raw logits of unpadded sequences, by transformers itself."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(path).eval()
    with torch.no_grad():
        return [
            model(torch.tensor([s]), **{k: torch.tensor([v[i]]) for k, v in more.items()}).logits.item() for i, s in enumerate(sequences)
        ]


def test_padded_batches_equal_single_sequences(folder: Path) -> None:
    engine = build_engine(spec(write_llama_scorer(folder / "bt"), "pooling"))
    engine.start()
    sequences = [*SEQUENCES, (7, 0, 9, 0), (2, 2, 2)]  # pad and end tokens inside, and at the end
    values = engine.classify([PoolingRequest(s) for s in sequences])
    assert [v.value for v in values] == pytest.approx(alone(folder / "bt", SEQUENCES) + [v.value for v in values[5:]], abs=1e-5)
    assert [v.value for v in engine.classify([PoolingRequest((7, 0, 9, 0)), PoolingRequest(SEQUENCES[4])])] == pytest.approx(
        [values[5].value, values[4].value], abs=1e-5
    )


def test_bert_pairs(folder: Path) -> None:
    engine = build_engine(spec(write_bert_scorer(folder / "bert"), "pooling"))
    engine.start()
    types = [tuple(int(i > len(s) // 2) for i in range(len(s))) for s in SEQUENCES]
    values = engine.classify([PoolingRequest(s, t) for s, t in zip(SEQUENCES, types, strict=True)])
    assert [v.value for v in values] == pytest.approx(alone(folder / "bert", SEQUENCES, token_type_ids=types), abs=1e-5)
    assert abs(values[0].value - engine.classify([PoolingRequest(SEQUENCES[0])])[0].value) > 1e-3
    assert math.isnan(engine.classify([PoolingRequest((5,) * 65)])[0].value)  # 64 positions


def test_missing_head(folder: Path) -> None:
    with pytest.raises(RewardError, match="random"):
        build_engine(spec(write_headless_scorer(folder / "headless"), "pooling")).start()


def test_texts(folder: Path) -> None:
    engine = build_engine(spec(write_llama(folder / "lm"), "generate"))
    engine.start()
    greedy = Sampling(max_tokens=6, temperature=0.0, n=2, ignore_eos=True)
    (texts,) = engine.generate([GenerateRequest((5, 6, 7), greedy)])
    assert len(texts) == 2
    assert texts[0] == texts[1]
    assert (texts[0].finish_reason, texts[0].tokens_in, texts[0].tokens_out) == ("length", 3, 6)
    stop = texts[0].text[3:5]
    (stopped,) = engine.generate([GenerateRequest((5, 6, 7), replace(greedy, n=1, stop=(stop,)))])
    assert stopped[0].finish_reason == "stop"
    assert stop not in stopped[0].text
    assert engine.generate([GenerateRequest((5,) * 1024, greedy)])[0][0].finish_reason == "overlong"
    with pytest.raises(ConfigError, match="choice"):
        engine.generate([GenerateRequest((5,), Sampling(max_tokens=2, choice=("a",)))])


def test_sleep_and_wake(folder: Path) -> None:
    engine = build_engine(spec(write_llama_scorer(folder / "sleeper"), "pooling"))
    engine.start()
    before = engine.classify([PoolingRequest(SEQUENCES[0])])
    for level in (1, 2):
        engine.sleep(level)
        with pytest.raises(InfrastructureError, match=f"asleep {level}"):
            engine.classify([PoolingRequest(SEQUENCES[0])])
        engine.wake()
        assert engine.classify([PoolingRequest(SEQUENCES[0])]) == before
