"""Rewards that differ in a LoRA adapter alone: one engine, a key of the cache for each, and what is
refused before anything is loaded."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import RewardConfig
from rmrl.rewards.cache.keys import request_key, scorer_key
from rmrl.rewards.entries.listing import reward_table
from rmrl.rewards.entries.resolve import Resolved, Surroundings, resolve_rewards
from rmrl.rewards.residency import plan_engines, sized
from tests.engine_models import write_adapter, write_llama, write_llama_scorer
from tests.rewards import parts
from tests.rewards.parts import engine, judge, make_scorer, rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    base = write_llama(folder / "judge")
    for letter, rank in (("kind", 4), ("exact", 12)):
        write_adapter(folder / letter, base, rank=rank)
    write_adapter(folder / "reward", write_llama_scorer(folder / "scorer"))
    return folder


def resolved(folder: Path, **specs: Any) -> Resolved:
    entries: dict[str, Any] = {}
    for name, changes in specs.items():
        entries[name] = {"path": str(folder / "judge"), "rubric": "It is good."} | changes
    config = RewardConfig(models=list(specs), specs=entries)
    return resolve_rewards(config, Surroundings(device="cpu", threads=1, functions_dirs=[folder]))


def test_three_rewards_share_one_engine_whose_memory_has_the_adapters(folder: Path) -> None:
    both = {name: {"adapter": str(folder / name)} for name in ("kind", "exact")}
    found = resolved(folder, plain={}, **both)
    assert found.problems == []
    (plan,) = sized(plan_engines(found.specs))
    assert plan.label == "plain+kind+exact"
    assert plan.spec.adapter == ""
    assert plan.spec.adapters == (str(folder / "exact"), str(folder / "kind"))
    (alone,) = sized(plan_engines(found.specs[:1]))
    # adapters of rank 4 and 12 in float32, and three slots of rank 12 (two and the empty one)
    tensors = 2 * (4 + 12) * 4 * ((128 + 128) + (128 + 64) + (256 + 128))
    per_layer = (128 + 128) + 2 * (128 + 64) + (128 + 128) + 3 * (128 + 256)
    slots = 3 * 12 * 4 * (2 * per_layer + 2 * (1024 + 128))
    assert plan.awake_bytes - alone.awake_bytes == tensors + slots
    assert "judge + LoRA kind (vllm generate" in reward_table(found.specs)


def test_other_engine_settings_are_another_engine(folder: Path) -> None:
    longer = {"adapter": str(folder / "kind"), "engine": {"max_model_len": 64}}
    found = resolved(folder, plain={}, kind=longer)
    assert [plan.spec.adapters for plan in plan_engines(found.specs)] == [
        (),
        (str(folder / "kind"),),
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"adapter": "{folder}/nothing"}, "is not a folder; give the folder of a LoRA"),
        ({"adapter": "{folder}/judge"}, "holds no adapter_config.json"),
        ({"engine": {"name": "sglang"}}, "this engine runs no LoRA adapters"),
        ({"kind": "similarity", "rubric": ""}, "runs no LoRA adapters"),
        ({"adapter": "{folder}/reward"}, "trained with a head (task_type=SEQ_CLS), and '"),
        (
            {"adapter": "{folder}/reward", "kind": "bradley_terry"},
            "which has no place for one; merge the two, AutoModelForSequenceClassification",
        ),
        (
            {"path": "", "server": {"url": "http://x/v1", "model": "m"}},
            "on a server or in an engine",
        ),
    ],
)
def test_refused_before_anything_is_loaded(
    folder: Path, changes: dict[str, Any], sentence: str
) -> None:
    entries = {"adapter": "{folder}/kind"} | changes
    entries["adapter"] = entries["adapter"].format(folder=folder)
    if "kind" in entries:
        entries.pop("rubric", None)
        found = resolve_rewards(
            RewardConfig(models=["r"], specs={"r": {"path": str(folder / "judge"), **entries}}),
            Surroundings(device="cpu", threads=1, functions_dirs=[folder]),
        )
    else:
        found = resolved(folder, r=entries)
    (problem,) = found.problems
    assert sentence in problem


@pytest.mark.parametrize(
    "entries",
    [
        {"kind": "remote", "wire": "openai", "url": "http://x/v1", "model": "m"},
        {"kind": "ensemble", "of": ["judge", "other"]},
    ],
)
@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("adapter", "/nonexistent"),
        ("adapter", "{folder}/kind"),
        ("path", "policy"),
        ("path", "reference"),
        ("path", "{folder}/judge"),
        ("engine", {"max_model_len": 64}),
    ],
)
def test_a_reward_without_an_engine_of_its_own_has_no_model(
    folder: Path, entries: dict[str, Any], key: str, entry: Any
) -> None:
    specs: dict[str, Any] = {"judge": {"path": str(folder / "judge"), "rubric": "It is good."}}
    specs["other"] = specs["judge"]
    models = ["judge", "other", "r"]
    if entries["kind"] == "remote":
        entries = entries | {"rubric": "It is good."}
    given = entry.format(folder=folder) if isinstance(entry, str) else entry
    specs["r"] = entries | {key: given}
    found = resolve_rewards(
        RewardConfig(models=models, specs=specs),
        Surroundings(device="cpu", threads=1, functions_dirs=[folder]),
    )
    (problem,) = found.problems
    assert problem.startswith(f"reward.specs.r.{key}: this reward runs no model of its own here")
    assert f"leave {key} out" in problem
    del specs["r"][key]
    without = resolve_rewards(
        RewardConfig(models=models, specs=specs),
        Surroundings(device="cpu", threads=1, functions_dirs=[folder]),
    )
    assert without.problems == []


def test_a_rule_has_no_adapter(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return 1.0\n",
        encoding="utf-8",
    )
    config = RewardConfig(models=["fine"], specs={"fine": {"adapter": str(folder / "kind")}})
    found = resolve_rewards(
        config, Surroundings(device="cpu", threads=1, functions_dirs=[tmp_path])
    )
    assert found.problems == ["reward.specs.fine.adapter: a rule runs no model, leave it out"]


async def test_requests_of_one_batch_name_their_adapters(tokenizer: Any, tmp_path: Path) -> None:
    script = {"text": "1", "adapters": {"kind": {"text": "2"}, "exact": {"text": "3"}}}
    shared = engine(name="tests.rewards.parts:RecordingEngine", kwargs=script)
    specs = [judge(tmp_path, "plain", engine=shared)]
    for name in ("kind", "exact"):
        adapted = dataclasses.replace(shared, adapter=f"/adapters/{name}")
        specs.append(judge(tmp_path, name, engine=adapted))
    parts.calls.clear()
    scorer = make_scorer(specs, tokenizer)
    try:
        batch = await asyncio.wait_for(scorer.score(rows("a", "b")), 60)
    finally:
        await scorer.close()
    assert batch.scores.values_BC.tolist() == [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
    ((method, requests),) = parts.calls  # one load, one batch
    assert method == "generate"
    assert sorted(request.adapter for request in requests) == [
        "", "", "/adapters/exact", "/adapters/exact", "/adapters/kind", "/adapters/kind",
    ]  # fmt: skip
    assert batch.metrics["engine/plain+kind+exact/loads"] == 1


async def test_verdicts_of_two_adapters_are_stored_apart(
    folder: Path, tokenizer: Any, tmp_path: Path
) -> None:
    script = {"text": "1", "adapters": {"kind": {"text": "2"}, "exact": {"text": "3"}}}
    values: list[float] = []
    for adapter in ("", "kind", "exact", "", "kind", "exact"):
        spec = engine(kwargs=script, adapter=str(folder / adapter) if adapter else "")
        scorer = make_scorer(
            [judge(tmp_path, engine=spec)],
            tokenizer,
            cache=dataclasses.replace(RewardConfig().cache, path=str(tmp_path / "verdicts.sqlite")),
        )
        try:
            batch = await asyncio.wait_for(scorer.score(rows("a")), 60)
        finally:
            await scorer.close()
        values += batch.scores.values_BC[:, 0].tolist()
        hits = batch.metrics["score/judge/cache_hits"]
        assert hits == (1.0 if len(values) > 3 else 0.0)
    assert values == [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]


def test_an_adapter_is_known_by_its_content(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / "kind", tmp_path / "elsewhere")

    def key(adapter: Path | str) -> str:
        return scorer_key(engine(adapter=str(adapter)), code_hash="")

    assert key(copy) == key(folder / "kind")
    assert len({key(""), key(copy), key(folder / "exact")}) == 3
    weights = copy / "adapter_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert key(copy) != key(folder / "kind")


def test_keys_without_an_adapter_are_those_of_earlier_versions() -> None:
    from rmrl.inference.reward_engine_base import PoolingRequest

    # written down before adapters existed
    assert request_key("s", "classify", PoolingRequest((1, 2, 3))).hex() == OLD_REQUEST
    assert scorer_key(engine(), code_hash="") == OLD_SCORER


OLD_REQUEST = "44483427c766eef7e2a0d59912c17ec474295bafad00a289bc05528b9f1a292b"
OLD_SCORER = "56e0b81bfd05ed5a66b60f7d83b3d60688335abc815aabda0ca2e8fea4980a75"
