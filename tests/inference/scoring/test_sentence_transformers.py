import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rmrl.errors import ConfigError, EngineLoadError, InfrastructureError
from rmrl.inference.reward_engine_base import (
    EmbedOutput,
    EmbedRequest,
    EngineSpec,
    PoolingRequest,
    RewardEngine,
    overlong_detail,
)
from rmrl.inference.reward_engines import build_engine
from tests.engine_models import write_encoder

GIVEN: dict[str, Any] = {
    "name": "sentence_transformers", "dtype": "float32", "max_model_len": None, "max_num_seqs": 3, "max_num_batched_tokens": 64,
    "tensor_parallel_size": 1, "gpu_memory_utilization": 0.5, "kv_cache_bytes": 2**20, "device": "cpu", "threads": 1,
}  # fmt: skip
TEXTS = ["a longer text of some words", "b", "two words", "the same again, the same again", ""]


def spec(path: Path, runner: Any = "embed", **changed: Any) -> EngineSpec:
    return EngineSpec(path=str(path), runner=runner, **(GIVEN | changed))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("models") / "encoder")


@pytest.fixture(scope="module")
def engine(encoder: Path) -> RewardEngine:
    pytest.importorskip("sentence_transformers")
    engine = build_engine(spec(encoder))
    engine.start()
    return engine


def embedded(engine: RewardEngine, texts: list[str]) -> list[EmbedOutput]:
    return engine.embed([EmbedRequest(t) for t in texts])


def mean_vector(path: Path, text: str) -> torch.Tensor:
    """The mean over the tokens of the last layer, of length 1, by transformers itself; one text at
    a time, so nothing is padded."""
    from transformers import AutoModel, AutoTokenizer

    inputs = AutoTokenizer.from_pretrained(path)(text, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(path).eval()(**inputs).last_hidden_state[0]
    return torch.nn.functional.normalize(hidden.mean(0), dim=0)


def test_a_plain_encoder_gives_the_mean_of_its_tokens(encoder: Path, engine: RewardEngine) -> None:
    # its tokenizer has a chat template, which must not be applied
    for text, output in zip(TEXTS[:4], embedded(engine, TEXTS[:4]), strict=True):
        torch.testing.assert_close(
            torch.tensor(output.vector), mean_vector(encoder, text), atol=1e-5, rtol=0
        )
        assert output.tokens_in == len(text)  # a token a character


def test_an_overlong_text_is_marked_and_harms_no_other(engine: RewardEngine) -> None:
    first, overlong, second = embedded(engine, [TEXTS[0], "x" * 65, TEXTS[1]])
    assert (overlong.failure, overlong.vector, overlong.tokens_in) == ("overlong", (), 65)
    assert overlong.detail == overlong_detail(65, 64)
    assert embedded(engine, ["x" * 64])[0].failure == ""
    alone = embedded(engine, [TEXTS[0]]) + embedded(engine, [TEXTS[1]])
    for output, expected in zip((first, second), alone, strict=True):
        assert output.vector == pytest.approx(expected.vector, abs=1e-5)


def test_bfloat16_vectors_have_length_1(encoder: Path) -> None:
    engine = build_engine(spec(encoder, dtype="bfloat16"))
    engine.start()
    (output,) = embedded(engine, [TEXTS[0]])
    assert sum(x * x for x in output.vector) == pytest.approx(1.0, abs=1e-6)
    assert output.vector == pytest.approx(mean_vector(encoder, TEXTS[0]).tolist(), abs=0.03)


def test_sleep_and_wake(encoder: Path) -> None:
    engine = build_engine(spec(encoder))
    assert engine.ping() == "cold"
    engine.start()
    before = embedded(engine, TEXTS[:2])
    for level in (1, 2):
        engine.sleep(level)
        assert engine.ping() == f"asleep {level}"
        with pytest.raises(InfrastructureError, match=f"asleep {level}"):
            embedded(engine, TEXTS[:1])
        engine.wake()
        assert embedded(engine, TEXTS[:2]) == before
    assert engine.resident_bytes() > 10 * 2**20


def test_other_runners_are_refused(encoder: Path, engine: RewardEngine) -> None:
    with pytest.raises(ConfigError, match=r"embeddings only.*as a pooling model.*name=vllm"):
        build_engine(spec(encoder, "pooling")).start()
    with pytest.raises(ConfigError, match="embeddings only"):
        engine.classify([PoolingRequest((1,))])


def test_a_missing_package_is_named_with_its_cure(
    encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "sentence_transformers", None
    )  # as python marks what cannot be imported
    with pytest.raises(ConfigError, match=r'pip install "rmrl-toolkit\[similarity\]"'):
        build_engine(spec(encoder)).start()


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    with pytest.raises(EngineLoadError, match=str(tmp_path)):
        build_engine(spec(tmp_path)).start()


def test_a_real_model(all_minilm: Path) -> None:
    pytest.importorskip("sentence_transformers")
    engine = build_engine(spec(all_minilm))
    engine.start()
    texts = [
        "A man is eating food.",
        "A man is eating a piece of bread.",
        "The girl is carrying a baby.",
        "word " * 255,
    ]
    eating, bread, baby, overlong = embedded(engine, texts)
    cosines = [
        sum(a * b for a, b in zip(eating.vector, other.vector, strict=True))
        for other in (bread, baby)
    ]
    assert cosines == pytest.approx([0.755, -0.105], abs=0.005)
    assert (overlong.failure, overlong.tokens_in) == (
        "overlong",
        257,
    )  # the folder allows 256, two of them special


def test_a_vector_does_not_depend_on_its_batch(engine: RewardEngine) -> None:
    texts = ["".join(chr(97 + (7 * i + j) % 26) for j in range(3 + 5 * i % 50)) for i in range(12)]
    together = [output.vector for output in embedded(engine, texts)]
    alone = [embedded(engine, [text])[0].vector for text in texts]
    assert together == alone  # to the last bit
