"""Real vLLM against the transformers reference; one process starts all engines, the tests read what
it found."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmrl.errors import EngineLoadError, RewardError
from rmrl.inference.environment import engine_environment
from rmrl.inference.hf.reward_engine import HFEngine
from rmrl.inference.reward_engine_base import (
    EmbedRequest,
    EngineSpec,
    GenerateRequest,
    PoolingRequest,
)
from rmrl.inference.vllm.reward_engine import VLLMEngine
from rmrl.types import Sampling
from tests.engine_models import (
    write_bert_scorer,
    write_headless_scorer,
    write_llama,
    write_llama_scorer,
    write_process_scorer,
    write_token_scorer,
)
from tests.engine_process import run_in_engine_process
from tests.patience import PATIENCE_S
from tests.trainer.job import (
    SHARED_MEMORY,
    descendants,
    left_in_shared_memory,
    shared_memory,
    still_running,
    wait_for,
)

GIVEN: dict[str, Any] = {
    "dtype": "float32", "max_model_len": None, "max_num_seqs": 16, "max_num_batched_tokens": 1024, "tensor_parallel_size": 1,
    "gpu_memory_utilization": 0.5, "kv_cache_bytes": 64 * 2**20, "device": "cpu", "threads": 1,
}  # fmt: skip
GREEDY = Sampling(max_tokens=12, temperature=0.0, ignore_eos=True)
PROMPTS = [tuple((7 * i + 13 * n) % 1000 + 4 for i in range(n)) for n in (5, 40, 3, 150)]
SHORT = [p[:60] for p in PROMPTS]
TYPES = [tuple(int(i >= len(p) // 2) for i in range(len(p))) for p in SHORT]
TOO_LONG = (5,) * 1500
ANSWERS = tuple(range(100, 140))


def spec(path: str, runner: Any, name: str = "vllm", **changed: Any) -> EngineSpec:
    return EngineSpec(path=path, runner=runner, name=name, **(GIVEN | changed))


SCHEMA = json.dumps({
    "type": "object", "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}, "ok": {"type": "boolean"}},
    "required": ["score", "ok"], "additionalProperties": False,
})  # fmt: skip


def scenario(
    lm: str, bt: str, bert: str, headless: str, tokens: str, scalar_tokens: str, process: str
) -> dict[str, Any]:
    return {
        "lm": _judge(lm),
        "bt": _scalar(bt),
        "bert": _pairs(bert),
        "refused": _refused(headless, lm),
        "tokens": _labels(tokens, "token_pooling"),
        "last token": _labels(scalar_tokens, "pooling"),
        "process": _labels(process, "token_pooling"),
        "half precision": _answers(lm),
    }


def _judge(path: str) -> dict[str, Any]:
    engine = VLLMEngine(spec(path, "generate"))
    engine.start()
    requests = [
        *(GenerateRequest(p, GREEDY) for p in PROMPTS),
        GenerateRequest(PROMPTS[0], Sampling(max_tokens=4, n=3, choice=("yes", "no"))),
        GenerateRequest(PROMPTS[1], Sampling(max_tokens=8, regex="[0-9]{3}")),
        GenerateRequest(TOO_LONG, Sampling(max_tokens=4, n=2)),
        GenerateRequest(PROMPTS[2], Sampling(max_tokens=40, n=4, json_schema=SCHEMA)),
    ]
    found: dict[str, Any] = {"texts": engine.generate(requests), "sleep": {}}
    for level in (1, 2):
        awake = engine.resident_bytes()
        engine.sleep(level)
        found["sleep"][level] = (engine.ping(), awake - engine.resident_bytes())
        engine.wake()
        found[f"after {level}"] = engine.generate(requests[:4])
    return found


def _answers(path: str) -> list[tuple[float, ...]]:
    """Answers' log-probabilities that a judge in bfloat16 gives beside texts."""
    engine = VLLMEngine(spec(path, "generate", dtype="bfloat16"))
    engine.start()
    read = Sampling(max_tokens=1, temperature=0.0)
    mixed: list[GenerateRequest] = []
    for prompt in PROMPTS:
        mixed += [
            GenerateRequest(prompt, GREEDY),
            GenerateRequest(prompt, read, choice_tokens=ANSWERS),
        ]
    outputs = [texts[0] for texts in engine.generate(mixed)]
    assert all(each.text for each in outputs[::2])
    assert [each.choice_logprobs for each in outputs[::2]] == [()] * len(PROMPTS)
    return [each.choice_logprobs for each in outputs[1::2]]


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
    found = {
        "pairs": engine.classify(pairs),
        "plain": engine.classify([PoolingRequest(p) for p in SHORT]),
    }
    found["mixed"] = engine.classify([pairs[0], PoolingRequest(SHORT[1])])
    engine.sleep(2)
    engine.wake()
    return found | {"woken": engine.classify(pairs), "context": engine.context_length}


def _labels(path: str, runner: str) -> dict[str, Any]:
    """A token-level head, twice (the second time from the prefix cache, if anything were), and
    after each sleep."""
    engine = VLLMEngine(spec(path, runner))
    engine.start()
    requests = [PoolingRequest(p, positions=(len(p) - 1, 0)) for p in PROMPTS]
    ask = engine.token_logits if runner == "token_pooling" else engine.classify
    found: dict[str, Any] = {
        "first": ask(requests),
        "again": ask(requests),
        "overlong": ask([PoolingRequest(TOO_LONG), requests[0]]),
    }
    for level in (1, 2):
        engine.sleep(level)
        found[f"state {level}"] = engine.ping()
        engine.wake()
        found[f"after {level}"] = ask(requests)
    return found


def _refused(headless: str, lm: str) -> dict[str, str]:
    found = {}
    small = spec(lm, "generate", kv_cache_bytes=2**19)
    for name, kind, engine_spec in (
        ("headless", RewardError, spec(headless, "pooling")),
        ("no room", EngineLoadError, small),
    ):
        try:
            VLLMEngine(engine_spec).start()
        except kind as error:
            found[name] = str(error)
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    makers: dict[str, Any] = {
        "lm": write_llama,
        "bt": write_llama_scorer,
        "bert": write_bert_scorer,
        "headless": write_headless_scorer,
        "tokens": write_token_scorer,
        "last token": lambda folder: write_token_scorer(folder, labels=1),
        "process": write_process_scorer,
    }
    return {name: maker(root / name) for name, maker in makers.items()}


@pytest.fixture(scope="module")
def found(folders: dict[str, Path]) -> dict[str, Any]:
    return run_in_engine_process(scenario, *(str(path) for path in folders.values()))


def reference(path: Path, runner: str, **changed: Any) -> HFEngine:
    engine = HFEngine(spec(str(path), runner, name="hf", **changed))
    engine.start()
    return engine


def values(outputs: list[Any]) -> list[float]:
    return [o.value for o in outputs]


def test_greedy_texts_equal_the_reference(folders: dict[str, Path], found: dict[str, Any]) -> None:
    expected = reference(folders["lm"], "generate").generate(
        [GenerateRequest(p, GREEDY) for p in PROMPTS]
    )
    assert found["lm"]["texts"][:4] == expected


def test_structured_output_and_overlong_in_one_batch(found: dict[str, Any]) -> None:
    choice, regex, overlong, _ = found["lm"]["texts"][4:]
    assert len(choice) == 3
    assert {t.text for t in choice} <= {"yes", "no"}
    assert len(regex[0].text) == 3
    assert regex[0].text.isdigit()
    assert [(t.text, t.failure, t.tokens_in) for t in overlong] == [("", "overlong", 1500)] * 2


def test_json_is_compact_and_of_its_schema(found: dict[str, Any]) -> None:
    for sample in found["lm"]["texts"][7]:
        assert (
            sample.finish_reason == "stop"
        )  # white space, which a random model loves, would have used up all 40 tokens
        assert not any(c.isspace() for c in sample.text)
        verdict = json.loads(sample.text)
        assert 0 <= verdict["score"] <= 10
        assert isinstance(verdict["ok"], bool)


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_frees_memory_and_wake_restores(found: dict[str, Any], level: int) -> None:
    state, freed = found["lm"]["sleep"][level]
    assert state == f"asleep {level}"
    assert freed > (
        50 * 2**20 if level == 1 else 0
    )  # the KV cache alone is 64 MiB; after waking only what was touched since is there
    assert found["lm"][f"after {level}"] == found["lm"]["texts"][:4]


def test_scalars_equal_the_reference(folders: dict[str, Path], found: dict[str, Any]) -> None:
    expected = values(
        reference(folders["bt"], "pooling").classify([PoolingRequest(p) for p in PROMPTS])
    )
    assert max(expected) - min(expected) > 0.1
    for way in ("batched", "shuffled", "alone", "woken"):
        assert values(found["bt"][way]) == pytest.approx(expected, abs=1e-4), way


def test_an_overlong_sequence_harms_no_other(found: dict[str, Any]) -> None:
    first, overlong, second = found["bt"]["overlong"]
    assert values([first, second]) == pytest.approx(values(found["bt"]["batched"][:2]), abs=1e-4)
    assert math.isnan(overlong.value)
    assert (overlong.failure, overlong.tokens_in) == ("overlong", 1500)


def test_bert_pairs_equal_the_reference(folders: dict[str, Path], found: dict[str, Any]) -> None:
    engine = reference(folders["bert"], "pooling")
    pairs = values(
        engine.classify([PoolingRequest(p, t) for p, t in zip(SHORT, TYPES, strict=True)])
    )
    plain = values(engine.classify([PoolingRequest(p) for p in SHORT]))
    assert found["bert"]["context"] == 64
    assert values(found["bert"]["pairs"]) == pytest.approx(pairs, abs=1e-3)
    assert values(found["bert"]["woken"]) == pytest.approx(pairs, abs=1e-3)
    assert values(found["bert"]["plain"]) == pytest.approx(plain, abs=1e-3)
    assert values(found["bert"]["mixed"]) == pytest.approx([pairs[0], plain[1]], abs=1e-3)
    assert abs(pairs[0] - plain[0]) > 0.01


def test_token_heads_equal_the_reference(folders: dict[str, Path], found: dict[str, Any]) -> None:
    requests = [PoolingRequest(p, positions=(len(p) - 1, 0)) for p in PROMPTS]
    expected = torch.tensor(
        [o.logits for o in reference(folders["tokens"], "token_pooling").token_logits(requests)]
    )
    assert expected.shape == (4, 2, 3)
    for way in ("first", "again", "after 1", "after 2"):
        torch.testing.assert_close(
            torch.tensor([o.logits for o in found["tokens"][way]]), expected, atol=1e-4, rtol=0
        )
    overlong, first = found["tokens"]["overlong"]
    assert (overlong.failure, overlong.logits) == ("overlong", ())
    torch.testing.assert_close(torch.tensor(first.logits), expected[0], atol=1e-4, rtol=0)


def test_a_head_with_a_bias_keeps_its_weights_while_asleep(found: dict[str, Any]) -> None:
    assert (found["tokens"]["state 1"], found["tokens"]["state 2"]) == ("asleep 1", "asleep 1")
    assert found["process"]["state 2"] == "asleep 2"


def test_a_token_head_of_one_label_is_read_at_the_last_token(
    folders: dict[str, Path], found: dict[str, Any]
) -> None:
    expected = values(
        reference(folders["last token"], "pooling").classify([PoolingRequest(p) for p in PROMPTS])
    )
    for way in ("first", "again", "after 1", "after 2"):
        assert values(found["last token"][way]) == pytest.approx(expected, abs=1e-4), way


def test_a_process_reward_model_equals_its_definition(
    folders: dict[str, Path], found: dict[str, Any]
) -> None:
    """Two linear layers with a ReLU between, on the last hidden state."""
    from safetensors.torch import load_file
    from transformers import Qwen2Config, Qwen2Model

    tensors = load_file(folders["process"] / "model.safetensors")
    model = Qwen2Model(Qwen2Config.from_pretrained(folders["process"])).eval()
    model.load_state_dict(
        {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    )
    linear = torch.nn.functional.linear
    for way in ("first", "again", "after 1", "after 2"):
        for prompt, output in zip(PROMPTS, found["process"][way], strict=True):
            with torch.no_grad():
                hidden = model(torch.tensor([prompt])).last_hidden_state[0, [-1, 0]]
            inner = linear(hidden, tensors["score.0.weight"], tensors["score.0.bias"]).relu()
            expected = linear(inner, tensors["score.2.weight"], tensors["score.2.bias"])
            torch.testing.assert_close(torch.tensor(output.logits), expected, atol=1e-4, rtol=0)


def test_what_cannot_work_is_refused(folders: dict[str, Path], found: dict[str, Any]) -> None:
    assert str(folders["headless"]) in found["refused"]["headless"]
    assert "score.weight" in found["refused"]["headless"]
    assert (
        "KV cache" in found["refused"]["no room"]
    )  # vLLM's own words: a whole sequence needs 1 MiB


def real_pairs(path: str, requests: list[PoolingRequest]) -> list[float]:
    engine = VLLMEngine(spec(path, "pooling"))
    engine.start()
    return values(engine.classify(requests))


def test_a_real_cross_encoder(ms_marco: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ms_marco)
    question = "How many people live in Berlin?"
    answers = [
        "Berlin has 3.7 million inhabitants.",
        "Berlin is known for its museums.",
        "I like trains.",
        "Berlin. " * 300,
    ]
    encoded = [tokenizer(question, answer) for answer in answers]
    requests = [PoolingRequest(tuple(e["input_ids"]), tuple(e["token_type_ids"])) for e in encoded]
    scores = run_in_engine_process(real_pairs, os.fspath(ms_marco), requests)
    assert scores[:3] == pytest.approx(
        values(reference(ms_marco, "pooling").classify(requests[:3])), abs=1e-3
    )
    assert scores[0] > scores[1] > scores[2]
    assert math.isnan(scores[3])  # 512 positions


def real_vectors(path: str, texts: list[str]) -> Any:
    engine = VLLMEngine(spec(path, "embed"))
    engine.start()
    first = engine.embed([EmbedRequest(t) for t in texts])
    engine.sleep(2)
    engine.wake()
    return first, engine.embed([EmbedRequest(t) for t in texts])


def test_a_real_encoder_equals_sentence_transformers(all_minilm: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from rmrl.inference.reward_engines import build_engine

    texts = [
        "A man is eating food.",
        "",
        "Bread",
        "the quick brown fox jumps over the lazy dog " * 20,
        "word " * 255,
    ]
    first, woken = run_in_engine_process(real_vectors, os.fspath(all_minilm), texts)
    engine = build_engine(spec(os.fspath(all_minilm), "embed", name="sentence_transformers"))
    engine.start()
    expected = engine.embed([EmbedRequest(t) for t in texts])
    assert [o.failure for o in expected] == ["", "", "", "", "overlong"]
    for outputs in (first, woken):
        assert [(o.failure, o.tokens_in, o.detail) for o in outputs] == [
            (o.failure, o.tokens_in, o.detail) for o in expected
        ]
        for output, wanted in zip(outputs, expected, strict=True):
            assert output.vector == pytest.approx(wanted.vector, abs=1e-5)


def test_answers_are_read_from_logits_that_are_not_rounded(
    found: dict[str, Any], folders: dict[str, Path]
) -> None:
    """Differences of rounded logits are multiples of 2^-14 unless a logit is below 2^-6."""
    engine = reference(folders["lm"], "generate", dtype="bfloat16")
    requests = [GenerateRequest(p, GREEDY, choice_tokens=ANSWERS) for p in PROMPTS]
    expected = np.asarray([texts[0].choice_logprobs for texts in engine.generate(requests)])
    logprobs = np.asarray(found["half precision"])
    np.testing.assert_allclose(logprobs, expected, atol=0.06)
    steps = (logprobs[:, 1:] - logprobs[:, :1]) * 2**14
    assert (np.abs(steps - steps.round()) < 0.1).mean() < 0.5


def stay(worker: Any) -> None:
    """Let the shutdown of the second worker last."""
    if worker.rpc_rank == 1:
        worker.shutdown = lambda: time.sleep(600)


def parallel(path: str, answer: str) -> None:
    """Write texts and scalars of a two-process engine to `answer`, then wait to be killed."""
    judge = VLLMEngine(spec(path, "generate", tensor_parallel_size=2))
    judge.start()
    judge._llm.collective_rpc(stay)
    texts = judge.generate([GenerateRequest(p, GREEDY, choice_tokens=(5, 700)) for p in PROMPTS])
    judge.sleep(2)
    judge.wake()
    woken = judge.generate([GenerateRequest(p, GREEDY) for p in PROMPTS])
    outputs = {
        "texts": [t[0].text for t in texts],
        "choices": [t[0].choice_logprobs for t in texts],
        "woken": [t[0].text for t in woken],
    }
    Path(answer + ".part").write_text(json.dumps(outputs | {"bytes": judge.resident_bytes()}))
    Path(answer + ".part").rename(answer)
    time.sleep(600)


def mapped(pids: list[int]) -> set[str]:
    """Names in /dev/shm that the processes have mapped."""
    names: set[str] = set()
    for pid in pids:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if f"{SHARED_MEMORY}/" in line:
                names.add(Path(line.split(maxsplit=5)[5]).name)
    return names


def test_two_processes_equal_one_and_die_with_their_parent(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    answer, before = tmp_path / "answer.json", shared_memory()
    call = (
        f"from tests.slow.inference.scoring.test_vllm import parallel; parallel({str(folders['lm'])!r},"
        f" {str(answer)!r})"
    )
    environment = os.environ | engine_environment(device="cpu", threads=1)
    process = subprocess.Popen(
        [sys.executable, "-c", call], env=environment, cwd=Path(__file__).parents[4]
    )
    try:
        wait_for(lambda: answer.exists() or process.poll() is not None, what="an answer")
        found = json.loads(answer.read_text())
        workers = descendants(process.pid)
        segments = mapped([process.pid, *(worker.pid for worker in workers)])
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    assert still_running(workers) == []
    assert segments & left_in_shared_memory(before) == set()
    assert len(workers) >= 2
    assert segments
    expected = reference(folders["lm"], "generate").generate(
        [GenerateRequest(p, GREEDY, choice_tokens=(5, 700)) for p in PROMPTS]
    )
    assert found["texts"] == found["woken"] == [t[0].text for t in expected]
    assert found["choices"] == [pytest.approx(t[0].choice_logprobs, abs=1e-4) for t in expected]
