"""Small parts that tests of the reward layer share: checkpoints without weights, drop-ins, items,
an engine that remembers."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import (
    EngineSpec,
    GenerateRequest,
    PoolingRequest,
    TextOutput,
    ValueOutput,
)
from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.residency import Budget, Residency, plan_engines
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.types import Prompt, RewardBatch, Sampling, ScoreItem
from tests.patience import PATIENCE_S
from tests.support import fakes
from tests.support.fake_processes import FakeHost
from tests.support.fake_reward_engine import FakeEngine

ENGINE = EngineSpec(
    path="/models/judge", runner="generate", name=fakes.REWARD_ENGINE, dtype="bfloat16", max_model_len=None, max_num_seqs=8, max_num_batched_tokens=512,
    tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=1, device="cpu", threads=1,
)  # fmt: skip

JUDGE = """
def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    return [f"{prompt} {response}" for prompt, response in zip(text_prompts, text_responses, strict=True)]

def rm_postprocess(results):
    return [float(text) if text.strip().lstrip("-").isdigit() else None for text in results]
"""


def problems_of(kind: type[Kind], entries: Mapping[str, Any], where: str = "w") -> list[str]:
    """What is wrong with a reward's own entries, as they were typed at `where`."""
    try:
        kind.read_options(entries, where)
    except ConfigError as error:
        return error.problems
    return []


calls: list[tuple[str, list[Any]]] = []
"""What reached a `RecordingEngine` since the list was last cleared."""


class RecordingEngine(FakeEngine):
    """A fake engine, named "tests.rewards.parts:RecordingEngine", that writes down its requests."""

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        calls.append(("generate", list(requests)))
        return super().generate(requests)

    def classify(self, requests: Sequence[PoolingRequest]) -> list[ValueOutput]:
        calls.append(("classify", list(requests)))
        return super().classify(requests)


class FewEngine(FakeEngine):
    """Loses the last result of every call."""

    def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        return super().generate(requests)[:-1]


def engine(**changes: Any) -> EngineSpec:
    return dataclasses.replace(ENGINE, **changes)


def judge(
    folder: Path,
    name: str = "judge",
    *,
    code: str = JUDGE,
    engine: EngineSpec = ENGINE,
    **changes: Any,
) -> RewardSpec:
    """A generative reward with a drop-in of its own."""
    path = folder / f"{name}.py"
    path.write_text(code, encoding="utf-8")
    dropin = load_dropin(path, name)
    defaults: dict[str, Any] = {
        "weight": 1.0,
        "model_index": 0,
        "sampling": Sampling(max_tokens=16, temperature=0.0),
    }
    defaults["options"] = GenerativeReward.Options(fence=False)
    return RewardSpec(
        name=name,
        kind="generative",
        dropin=dropin,
        engines={"main": engine},
        **{**defaults, **changes},
    )


def scalar(
    name: str = "scalar", *, weight: float = 1.0, engine: EngineSpec | None = None, **changes: Any
) -> RewardSpec:
    """A Bradley-Terry reward without a drop-in."""
    found = engine or dataclasses.replace(ENGINE, path="/models/scalar", runner="pooling")
    return RewardSpec(
        name=name, kind="bradley_terry", weight=weight, engines={"main": found}, **changes
    )


def rule(
    folder: Path,
    name: str,
    body: str,
    *,
    weight: float = 1.0,
    timeout_s: float = PATIENCE_S,
    on_missing: OnMissing | None = None,
    **changes: Any,
) -> RewardSpec:
    """A rule whose function body is `body`, with the response as `solution_str`."""
    path = folder / f"{name}.py"
    path.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n   "
        f" {body}\n",
        encoding="utf-8",
    )
    dropin = load_dropin(path, name)
    missing = on_missing or OnMissing()
    known = {
        "dropin": dropin,
        "function": dropin.source,
        "timeout_s": timeout_s,
        "on_missing": missing,
    }
    return RewardSpec(name=name, kind="rule", weight=weight, **known, **changes)


def items(*responses: str, prompt: str = "Q", truth: str | None = "1") -> list[ScoreItem]:
    return [
        ScoreItem(
            prompt_id=str(i),
            messages=[{"role": "user", "content": prompt}],
            response=text,
            rm_prompt=prompt,
            ground_truth=truth,
        )
        for i, text in enumerate(responses)
    ]


def rows(
    *responses: str,
    prompt: str = "Q",
    truth: str | None = "1",
    source: str = "",
    group_size: int = 1,
) -> list[ResponseRow]:
    """Responses to prompts that all say `prompt`, `group_size` to each."""
    messages = [{"role": "user", "content": prompt}]
    asked = [
        Prompt(id=str(g), messages=messages, token_ids=(), ground_truth=truth, data_source=source)
        for g in range(len(responses))
    ]
    return [
        ResponseRow(
            prompt=asked[i // group_size], text=text, tokens=len(text), group=i // group_size
        )
        for i, text in enumerate(responses)
    ]


def make_scorer(
    specs: Sequence[RewardSpec],
    tokenizer: Any,
    *,
    host: Any = None,
    budget: Budget | None = None,
    workers: int = 1,
    **settings: Any,
) -> Scorer:
    """A scorer whose engines are made by `host`; `settings` are fields of `RewardConfig`."""
    made = host or fake_host()
    config = RewardConfig(
        **{"models": [spec.name for spec in specs], "max_missing": 1.0, **settings}
    )
    residency = Residency(lambda _: made, plan_engines(specs), budget=budget)
    return Scorer(
        specs, config, residency=residency, tokenizer=always(tokenizer), rule_workers=workers
    )


async def scored(
    specs: Sequence[RewardSpec], rows: Sequence[ResponseRow], tokenizer: Any = None, **settings: Any
) -> RewardBatch:
    """A batch scored by a scorer of its own, which is closed afterwards."""
    scorer = make_scorer(specs, tokenizer, **settings)
    try:
        return await scorer.score(rows)
    finally:
        await scorer.close()


def fake_host(**deaths: int) -> FakeHost:
    """`p0=2`: the first process dies on its second call ("start" is the first)."""
    return FakeHost(deaths={int(key[1:]): value for key, value in deaths.items()})


def checkpoint(
    folder: Path, *, head: bool | None = None, labels: int = 1, names: Sequence[str] = ()
) -> Path:
    """A checkpoint with headers and no real weights: causal (`head` None), or scalar with or
    without its head tensor. `names`: of its labels, instead of so many `labels`."""
    folder.mkdir(parents=True)
    called = tuple(names) or tuple(f"L{i}" for i in range(labels))
    labels = len(called)
    architecture = "LlamaForCausalLM" if head is None else "LlamaForSequenceClassification"
    config = {"architectures": [architecture], "max_position_embeddings": 512}
    config |= {} if head is None else {"id2label": {str(i): name for i, name in enumerate(called)}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    names = {"model.norm.weight": [1]} | ({"score.weight": [labels]} if head else {})
    _write_tensors(folder / "model.safetensors", names)
    return folder


def adapter(folder: Path) -> Path:
    """A LoRA of rank 1 for any `checkpoint`."""
    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["norm"]}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    layer = "base_model.model.model.norm"
    names = {f"{layer}.lora_A.weight": [1], f"{layer}.lora_B.weight": [1]}
    _write_tensors(folder / "adapter_model.safetensors", names)
    return folder


def _write_tensors(file: Path, names: dict[str, list[int]]) -> None:
    entries, at = {}, 0
    for name, shape in names.items():
        size = 4 * shape[0]
        entries[name] = {"dtype": "F32", "shape": [*shape, 1], "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(at))


def chat_tokenizer(folder: Path) -> Any:
    """Single characters, special tokens <s> </s> <unk> <pad>, and <|im_start|> <|im_end|> that its
    chat template writes."""
    from transformers import AutoTokenizer

    from tests.engine_models import write_tokenizer

    write_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.add_tokens(["    "])
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif"
        " %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if"
        " add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return tokenizer


def always(tokenizer: Any) -> Callable[[str], Any]:
    """The tokenizer of every checkpoint."""
    return lambda path: tokenizer
