"""Several adapters on one engine: each like a checkpoint of its own with the adapter merged, the base
as if there were none."""

from __future__ import annotations

import dataclasses
import weakref
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import EngineLoadError
from rmrl.inference.hf.reward_engine import HFEngine
from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest, PoolingRequest
from rmrl.inference.reward_engines import build_engine
from rmrl.inference.vllm.adapters import adapter_arguments, adapter_problem
from rmrl.inference.vllm.reward_engine import VLLMEngine
from rmrl.models.adapter_inspect import Adapter
from rmrl.types import Sampling
from tests.engine_models import write_adapter, write_llama, write_llama_scorer, write_tokenizer
from tests.packages import hide
from tests.support import fakes

GIVEN: dict[str, Any] = {
    "dtype": "float32", "max_model_len": 512, "max_num_seqs": 16, "max_num_batched_tokens": 1024, "tensor_parallel_size": 1,
    "gpu_memory_utilization": 0.5, "kv_cache_bytes": 64 * 2**20, "device": "cpu", "threads": 1,
}  # fmt: skip
PROMPTS = [tuple((7 * i + 13 * n) % 1000 + 4 for i in range(n)) for n in (5, 40, 3, 90)]
FIRST = Sampling(max_tokens=6, temperature=0.0, ignore_eos=True)
CHOICES = (40, 41, 42)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    for name, write in (("judge", write_llama), ("scorer", write_llama_scorer)):
        base = write(folder / name)
        for letter, rank in (("a", 4), ("b", 12)):
            adapter = folder / f"{name}-{letter}"
            merged = folder / f"{name}-{letter}-merged"
            write_adapter(adapter, base, seed=rank, rank=rank, merged=merged)
    return folder


def spec(path: Path, runner: Any, name: str, *adapters: Path) -> EngineSpec:
    folders = tuple(map(str, adapters))
    return EngineSpec(path=str(path), runner=runner, name=name, adapters=folders, **GIVEN)


def asked(engine: Any, runner: str, adapters: list[str]) -> list[Any]:
    """Answers for each prompt, its adapter the one at the same place: the log-probabilities of the
    first token and the text, or the logit."""
    if runner == "generate":
        requests = [
            GenerateRequest(p, FIRST, choice_tokens=CHOICES, adapter=a)
            for p, a in zip(PROMPTS, adapters, strict=True)
        ]
        return [(out[0].choice_logprobs, out[0].text) for out in engine.generate(requests)]
    pooled = [PoolingRequest(p, adapter=a) for p, a in zip(PROMPTS, adapters, strict=True)]
    return [output.value for output in engine.classify(pooled)]


def scenario(folder: str, name: str, runner: str) -> dict[str, Any]:
    """Answers of the base, of each adapter and of a mixed batch: on one engine, on engines of their
    own, and on the one engine after it has slept."""
    root = Path(folder)
    model = "judge" if runner == "generate" else "scorer"
    a, b = root / f"{model}-a", root / f"{model}-b"
    engine = build_engine(spec(root / model, runner, name, a, b))
    engine.start()
    found: dict[str, Any] = {}
    ways = {"base": [""] * 4, "a": [str(a)] * 4, "b": [str(b)] * 4}
    ways["mixed"] = ["", str(a), str(b), ""]
    for way, adapters in ways.items():
        found[way] = asked(engine, runner, adapters)
    for level in (1, 2):
        engine.sleep(level)
        engine.wake()
        found[f"mixed after sleep {level}"] = asked(engine, runner, ways["mixed"])
        found[f"base after sleep {level}"] = asked(engine, runner, ways["base"])
    del engine
    for way, path in (("base", root / model), ("a", f"{a}-merged"), ("b", f"{b}-merged")):
        alone = build_engine(spec(Path(path), runner, name))
        alone.start()
        found[f"{way} alone"] = asked(alone, runner, [""] * 4)
        del alone
    return found


def check(found: dict[str, Any], runner: str) -> None:
    """Hold what is found against engines that serve one model each."""
    assert found["base"] == found["base alone"]  # to the last bit
    for way in "ab":
        if runner == "generate":
            shared, alone = ([text for _, text in found[key]] for key in (way, f"{way} alone"))
            assert shared == alone
            assert shared != [text for _, text in found["base"]]
            pairs = zip(found[way], found[f"{way} alone"], strict=True)
            for (logprobs, _), (merged, _) in pairs:
                assert logprobs == pytest.approx(merged, abs=1e-4)
        else:
            assert found[way] == pytest.approx(found[f"{way} alone"], abs=1e-4)
            assert found[way] != pytest.approx(found["base"], abs=1e-2)
    expected = [found["base"][0], found["a"][1], found["b"][2], found["base"][3]]
    for key in ("mixed", "mixed after sleep 1", "mixed after sleep 2"):
        if runner == "generate":
            assert [text for _, text in found[key]] == [text for _, text in expected]
            for (logprobs, _), (other, _) in zip(found[key], expected, strict=True):
                assert logprobs == pytest.approx(other, abs=1e-5)
        else:
            assert found[key] == pytest.approx(expected, abs=1e-5)
    assert found["base after sleep 1"] == found["base after sleep 2"] == found["base"]


@pytest.mark.parametrize("runner", ["generate", "pooling"])
def test_transformers(folder: Path, runner: str) -> None:
    check(scenario(str(folder), "hf", runner), runner)


@pytest.fixture(scope="module")
def headless(folder: Path) -> Path:
    """A LoRA of the scalar model without a head and without a task_type, as peft saves one that was
    made with neither."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(7)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder / "scorer", dtype=torch.float32
    )
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["v_proj"]))
    for name, tensor in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(tensor, std=0.05)
    adapted.save_pretrained(folder / "headless")
    adapted.merge_and_unload().save_pretrained(folder / "headless-merged")
    return folder / "headless"


@pytest.mark.parametrize("head_first", [True, False])
def test_one_adapter_brings_a_head_and_one_does_not(
    folder: Path, headless: Path, head_first: bool
) -> None:
    """Whichever is loaded first, the one has its own head and the other that of the base."""
    head = folder / "scorer-a"
    pair = (head, headless) if head_first else (headless, head)
    both = HFEngine(spec(folder / "scorer", "pooling", "hf", *pair))
    both.start()
    for adapter in (head, headless, head):
        alone = HFEngine(spec(Path(f"{adapter}-merged"), "pooling", "hf"))
        alone.start()
        expected = asked(alone, "pooling", [""] * 4)
        assert asked(both, "pooling", [str(adapter)] * 4) == pytest.approx(expected, abs=1e-4)
    base = HFEngine(spec(folder / "scorer", "pooling", "hf"))
    base.start()
    assert asked(both, "pooling", [""] * 4) == asked(base, "pooling", [""] * 4)


@pytest.mark.parametrize("tokens_first", [True, False])
def test_one_adapter_trains_tokens_and_one_does_not(
    folder: Path, tmp_path: Path, tokens_first: bool
) -> None:
    """`trainable_token_indices`: new embeddings of three tokens, which every prompt has or lacks."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(8)
    model = AutoModelForCausalLM.from_pretrained(folder / "judge", dtype=torch.float32)
    trained = sorted({prompt[0] for prompt in PROMPTS[:3]})
    config = LoraConfig(
        r=2, target_modules=["v_proj"], task_type="CAUSAL_LM", trainable_token_indices=trained
    )
    adapted = get_peft_model(model, config)
    for name, tensor in adapted.named_parameters():
        if "lora_B" in name or "trainable_tokens_delta" in name:
            torch.nn.init.normal_(tensor, std=0.3)
    tokens = tmp_path / "tokens"
    adapted.save_pretrained(tokens)
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    write_tokenizer(tmp_path / "merged")
    plain = folder / "judge-a"
    pair = (tokens, plain) if tokens_first else (plain, tokens)
    both = HFEngine(spec(folder / "judge", "generate", "hf", *pair))
    both.start()
    merged = {tokens: tmp_path / "merged", plain: folder / "judge-a-merged"}
    found: dict[Path, Any] = {}
    for adapter in (tokens, plain, tokens):
        alone = HFEngine(spec(merged[adapter], "generate", "hf"))
        alone.start()
        found[adapter] = asked(both, "generate", [str(adapter)] * 4)
        pairs = zip(found[adapter], asked(alone, "generate", [""] * 4), strict=True)
        for (logprobs, text), (expected, other) in pairs:
            assert text == other
            assert logprobs == pytest.approx(expected, abs=1e-4)
    assert found[tokens] != found[plain]


def test_nothing_holds_a_model_that_sleeps_at_level_2(folder: Path) -> None:
    """Else the next wake would hold two."""
    engine = HFEngine(spec(folder / "scorer", "pooling", "hf", folder / "scorer-a"))
    engine.start()
    before = asked(engine, "pooling", [str(folder / "scorer-a")] * 4)
    weight = weakref.ref(engine._resident.awake().model.embed_tokens.weight)
    assert weight() is not None
    engine.sleep(2)
    assert weight() is None
    engine.wake()
    assert asked(engine, "pooling", [str(folder / "scorer-a")] * 4) == before


def test_an_adapter_of_another_class_of_model_is_no_silent_base(
    folder: Path, tmp_path: Path
) -> None:
    """Trained on the model without its output layer, whose layers have shorter names: peft would
    load none of it, with a warning."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder / "judge", dtype=torch.float32)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["v_proj"]))
    adapted.save_pretrained(tmp_path / "bare")
    engine = HFEngine(spec(folder / "judge", "generate", "hf", tmp_path / "bare"))
    with pytest.raises(EngineLoadError, match="made for another class of model: 8 tensors have no"):
        engine.start()


def test_the_fake_engine_follows_the_script_of_an_adapter() -> None:
    script = {"value": 1.0, "text": "no", "adapters": {"kind": {"value": 2.0, "text": "yes"}}}
    fake = dataclasses.replace(spec(Path("m"), "generate", fakes.REWARD_ENGINE), kwargs=script)
    engine = build_engine(fake)
    engine.start()
    texts = engine.generate([GenerateRequest((1,), FIRST, adapter=a) for a in ("", "/x/kind")])
    assert [out[0].text for out in texts] == ["no", "yes"]
    values = engine.classify([PoolingRequest((1,), adapter=a) for a in ("", "/x/kind", "/x/other")])
    assert [value.value for value in values] == [1.0, 2.0, 1.0]


# --- what vLLM is told, and what it cannot run


def test_slots_and_rank_of_vllm(folder: Path) -> None:
    judge = spec(folder / "judge", "generate", "vllm", folder / "judge-a", folder / "judge-b")
    # ranks 4 and 12: the next size is 16; on CPU one slot stays empty
    expected = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 16}
    assert adapter_arguments(judge) == expected
    assert adapter_arguments(dataclasses.replace(judge, device="cuda"))["max_loras"] == 2
    assert adapter_arguments(spec(folder / "judge", "generate", "vllm")) == {}


@pytest.mark.parametrize(
    ("runner", "entries", "sentence"),
    [
        ("generate", {"rank": 513}, "its rank is 513, and vLLM runs at most 512"),
        ("generate", {"config": {"use_dora": True}}, "it has DoRA, which vLLM does not run"),
        ("generate", {"full_modules": ("lm_head",)}, r"modules_to_save: lm_head"),
        ("token_pooling", {"full_modules": ("score",)}, r"modules_to_save: score"),
        ("embed", {}, "adapters of embedding models"),
        ("pooling", {"full_modules": ("score",)}, ""),
        ("generate", {"rank": 512, "config": {"use_rslora": True, "bias": "none"}}, ""),
    ],
)
def test_what_vllm_does_not_run(runner: str, entries: dict[str, Any], sentence: str) -> None:
    adapter = Adapter(**({"folder": Path("x"), "rank": 8, "base": ""} | entries))
    problem = adapter_problem(adapter, runner)
    assert sentence in problem
    assert bool(sentence) == bool(problem)


def test_an_older_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from packaging.version import Version

    from rmrl.inference.vllm import compat

    monkeypatch.setattr(compat, "installed_version", lambda: Version("0.28"))
    adapter = Adapter(folder=Path("x"), rank=8, base="")
    assert "LoRA adapters need vLLM 0.32 or newer" in VLLMEngine.adapter_problem(
        adapter, "generate"
    )


def test_transformers_without_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "peft")
    adapter = Adapter(folder=Path("x"), rank=8, base="")
    assert "needs peft, which is not installed" in HFEngine.adapter_problem(adapter, "generate")
