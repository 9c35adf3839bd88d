import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rmrl.errors import ConfigError, EngineLoadError, InfrastructureError, RewardError
from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest, PoolingRequest
from rmrl.inference.reward_engines import build_engine
from rmrl.types import Sampling
from tests.engine_models import (
    write_bert_scorer,
    write_bert_token_scorer,
    write_headless_scorer,
    write_llama,
    write_llama_scorer,
    write_process_scorer,
    write_token_scorer,
)

GIVEN: dict[str, Any] = {
    "name": "hf", "dtype": "float32", "max_model_len": None, "max_num_seqs": 3, "max_num_batched_tokens": 64, "tensor_parallel_size": 1,
    "gpu_memory_utilization": 0.5, "kv_cache_bytes": 2**20, "device": "cpu", "threads": 1,
}  # fmt: skip
SEQUENCES = [tuple(range(5, 5 + n)) for n in (9, 3, 17, 1, 30)]


def spec(path: Path, runner: Any, **changed: Any) -> EngineSpec:
    return EngineSpec(path=str(path), runner=runner, **(GIVEN | changed))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def alone(path: Path, sequences: list[tuple[int, ...]], **more: Any) -> list[float]:
    """Raw logits of unpadded sequences, by transformers itself."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(path).eval()
    with torch.no_grad():
        return [
            model(
                torch.tensor([s]), **{k: torch.tensor([v[i]]) for k, v in more.items()}
            ).logits.item()
            for i, s in enumerate(sequences)
        ]


def test_a_head_by_another_name_is_not_drawn_at_random(folder: Path) -> None:
    path = write_llama_scorer(folder / "renamed")
    tensors = load_file(path / "model.safetensors")
    tensors["value_head.weight"] = tensors.pop("score.weight")
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    engine = build_engine(spec(path, "pooling"))
    with pytest.raises(EngineLoadError, match=r"lacks score\.weight.*holds value_head\.weight"):
        engine.start()


def test_padded_batches_equal_single_sequences(folder: Path) -> None:
    engine = build_engine(spec(write_llama_scorer(folder / "bt"), "pooling"))
    engine.start()
    sequences = [*SEQUENCES, (7, 0, 9, 0), (2, 2, 2)]  # pad and end tokens inside, and at the end
    values = engine.classify([PoolingRequest(s) for s in sequences])
    assert [v.value for v in values] == pytest.approx(
        alone(folder / "bt", SEQUENCES) + [v.value for v in values[5:]], abs=1e-5
    )
    assert [
        v.value
        for v in engine.classify([PoolingRequest((7, 0, 9, 0)), PoolingRequest(SEQUENCES[4])])
    ] == pytest.approx([values[5].value, values[4].value], abs=1e-5)


def test_bert_pairs(folder: Path) -> None:
    engine = build_engine(spec(write_bert_scorer(folder / "bert"), "pooling"))
    engine.start()
    types = [tuple(int(i > len(s) // 2) for i in range(len(s))) for s in SEQUENCES]
    values = engine.classify([PoolingRequest(s, t) for s, t in zip(SEQUENCES, types, strict=True)])
    assert [v.value for v in values] == pytest.approx(
        alone(folder / "bert", SEQUENCES, token_type_ids=types), abs=1e-5
    )
    assert abs(values[0].value - engine.classify([PoolingRequest(SEQUENCES[0])])[0].value) > 1e-3
    assert math.isnan(engine.classify([PoolingRequest((5,) * 65)])[0].value)  # 64 positions


@pytest.mark.parametrize("maker", [write_token_scorer, write_bert_token_scorer])
def test_token_logits_equal_single_sequences(folder: Path, maker: Any) -> None:
    from transformers import AutoModelForTokenClassification

    path = maker(folder / maker.__name__)
    engine = build_engine(spec(path, "token_pooling"))
    engine.start()
    requests = [PoolingRequest(s, positions=(len(s) - 1, 0, len(s) // 2)) for s in SEQUENCES]
    model = AutoModelForTokenClassification.from_pretrained(path).eval()
    with torch.no_grad():
        alone = [model(torch.tensor([r.token_ids])).logits[0][list(r.positions)] for r in requests]
    found = engine.token_logits(
        [*requests, PoolingRequest((5,) * 1025, positions=(0,)), PoolingRequest((5, 6))]
    )
    for output, expected in zip(found, alone, strict=False):
        torch.testing.assert_close(torch.tensor(output.logits), expected, atol=1e-5, rtol=0)
    assert [o.failure for o in found] == [""] * 5 + ["overlong", ""]
    assert (found[6].logits, found[6].tokens_in) == ((), 2)


def test_a_scalar_head_at_every_token(folder: Path) -> None:
    path = write_llama_scorer(folder / "steps")
    engine = build_engine(spec(path, "token_pooling"))
    engine.start()
    (found,) = engine.token_logits([PoolingRequest(SEQUENCES[2], positions=(2, 16))])
    # a causal model's scalar at a token is its scalar of the text that ends there
    prefixes = [SEQUENCES[2][:3], SEQUENCES[2]]
    assert [rows[0] for rows in found.logits] == pytest.approx(alone(path, prefixes), abs=1e-5)


def test_heads_that_read_no_single_tokens_are_refused(folder: Path) -> None:
    with pytest.raises(RewardError, match=r"classifier\.weight.*reads the whole sequence"):
        build_engine(spec(write_bert_scorer(folder / "whole"), "token_pooling")).start()
    with pytest.raises(RewardError, match="token scores would be random"):
        build_engine(
            spec(write_headless_scorer(folder / "tokens_headless"), "token_pooling")
        ).start()
    with pytest.raises(EngineLoadError, match=r"without its head.*name=vllm"):
        build_engine(spec(write_process_scorer(folder / "process"), "token_pooling")).start()


def test_embeddings_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="sentence_transformers"):
        build_engine(spec(folder, "embed")).start()


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
    assert engine.generate([GenerateRequest((5,) * 1024, greedy)])[0][0].failure == "overlong"
    for restricted in ({"choice": ("a",)}, {"regex": "a"}, {"json_schema": "{}"}):
        with pytest.raises(ConfigError, match="choice, regex or JSON schema"):
            engine.generate([GenerateRequest((5,), Sampling(max_tokens=2, **restricted))])


def test_choice_logprobs_are_those_of_the_next_token(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    path = write_llama(folder / "chooser")
    engine = build_engine(spec(path, "generate"))
    engine.start()
    sampling = Sampling(max_tokens=2, temperature=0.5, top_p=0.3, n=2, seed=1)
    (texts,) = engine.generate([GenerateRequest((5, 6, 7), sampling, choice_tokens=(9, 700, 9))])
    with torch.no_grad():
        logprobs = (
            AutoModelForCausalLM.from_pretrained(path)
            .eval()(torch.tensor([[5, 6, 7]]))
            .logits[0, -1]
            .log_softmax(-1)
        )
    assert [t.choice_logprobs for t in texts] == [
        pytest.approx(logprobs[[9, 700, 9]].tolist(), abs=1e-4)
    ] * 2


def test_heads_in_half_precision_are_not_rounded(folder: Path) -> None:
    """As vLLM's scoring heads are by themselves."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    tokens = [5, 6, 7]
    path = write_llama(folder / "half")
    engine = build_engine(spec(path, "generate", dtype="bfloat16"))
    engine.start()
    request = GenerateRequest(tuple(tokens), Sampling(max_tokens=1), choice_tokens=(9, 700))
    ((text,),) = engine.generate([request])
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        hidden_H = model.model(torch.tensor([tokens])).last_hidden_state[0, -1].float()
        logprobs_V = (model.lm_head.weight.float() @ hidden_H).log_softmax(-1)
    assert text.choice_logprobs == pytest.approx(logprobs_V[[9, 700]].tolist(), abs=1e-6)

    path = write_llama_scorer(folder / "half-scorer")
    engine = build_engine(spec(path, "pooling", dtype="bfloat16"))
    engine.start()
    (output,) = engine.classify([PoolingRequest(tuple(tokens))])
    scorer = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        hidden_H = scorer.model(torch.tensor([tokens])).last_hidden_state[0, -1].float()
    assert output.value == pytest.approx(
        float(scorer.score.weight[0].detach().float() @ hidden_H), abs=1e-6
    )


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


def test_batch_invariant_scores_are_those_of_single_sequences_to_the_last_bit(folder: Path) -> None:
    engine = build_engine(
        spec(write_llama_scorer(folder / "steady"), "pooling", batch_invariant=True)
    )
    engine.start()
    together = [output.value for output in engine.classify([PoolingRequest(s) for s in SEQUENCES])]
    assert together == [engine.classify([PoolingRequest(s)])[0].value for s in SEQUENCES]
