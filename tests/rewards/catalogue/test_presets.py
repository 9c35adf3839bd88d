"""A preset in the configuration becomes a reward."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForSequenceClassification

from rmrl.assemble.resolve import resolve
from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.inference.hf.reward_engine import HFEngine
from rmrl.inference.reward_engine_base import EngineSpec, PoolingRequest
from rmrl.main_show import main as show
from rmrl.models.checkpoint_inspect import check_scalar_head
from rmrl.rewards.catalogue.find import presets
from rmrl.rewards.catalogue.listing import catalogue_rows, catalogue_text, training_rows
from rmrl.rewards.entries.listing import reward_table
from rmrl.rewards.entries.resolve import Resolved
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreResult
from tests.engine_models import write_gated_scorer
from tests.rewards.parts import checkpoint, rows, scored
from tests.support import fakes

ROOT = Path(__file__).resolve().parents[3]
SKYWORK = "skywork-reward-v2-qwen3-0.6b"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the folders that hub ids name, without weights."""
    monkeypatch.chdir(tmp_path)
    for preset in presets().values():
        if preset.spec["kind"] in ("generative", "group") and not Path(preset.path).exists():
            checkpoint(tmp_path / preset.path)
        elif preset.spec["kind"] == "process":
            checkpoint(tmp_path / preset.path, head=True, labels=2)
        elif preset.spec["kind"] == "bradley_terry":
            checkpoint(tmp_path / preset.path, head=True)
    return tmp_path


def resolved(*names: str, trusted: bool = False, **settings: Any) -> Resolved:
    config = RewardConfig(models=list(names), **settings)
    return resolve(
        config, device="cpu", shipped_functions=ROOT / "reward_functions", trust_remote_code=trusted
    )


def one(name: str, **settings: Any) -> RewardSpec:
    found = resolved(name, **settings)
    assert found.problems == []
    (spec,) = found.specs
    return spec


def problem(name: str, **settings: Any) -> str:
    (text,) = resolved(name, **settings).problems
    return text


@pytest.mark.parametrize("name", list(presets()))
def test_every_preset_resolves(name: str, place: Path) -> None:
    preset = presets()[name]
    spec = one(f"preset:{name}", trusted=preset.card.remote_code)
    assert (spec.name, spec.kind, spec.preset) == (name, preset.spec["kind"], name)
    assert Path(spec.engines["main"].path) == Path(preset.path)
    assert (spec.dropin is not None) == preset.is_dropin


def test_entries_of_the_section_override_those_of_the_preset(place: Path) -> None:
    copy = checkpoint(place / "copies" / "guard")
    sections = {
        "llama-guard-3-8b": {"path": str(copy), "sampling": {"max_tokens": 5}, "on_missing": "fail"}
    }
    spec = one("preset:llama-guard-3-8b", specs=sections)
    assert spec.engines["main"].path == str(copy)
    assert spec.sampling is not None
    assert (spec.sampling.max_tokens, spec.sampling.temperature) == (5, 0.0)
    assert str(spec.on_missing) == "fail"


def test_a_reward_of_another_name(place: Path) -> None:
    """Names with dots cannot be reached on a command line, so a reward may have its own."""
    sections = {"mine": {"preset": SKYWORK, "transform": {"kind": "sigmoid", "temperature": 4}}}
    spec = one("mine", specs=sections)
    assert (spec.name, spec.preset, spec.kind) == ("mine", SKYWORK, "bradley_terry")
    assert len(spec.transforms) == 1


def test_presets_by_source_and_weights(place: Path) -> None:
    found = resolved(
        "preset:general-verifier",
        weights=[0.5],
        by_source={"chat": {"models": ["preset:llama-guard-3-8b"], "weights": [2.0]}},
    )
    assert found.problems == []
    assert [spec.name for spec in found.specs] == ["general-verifier", "llama-guard-3-8b"]
    first, second = found.specs
    assert first.sources is not None
    assert second.sources is not None
    assert (first.sources.get("math"), first.sources.get("chat")) == (0.5, None)
    assert second.sources["chat"] == 2.0


def test_a_judge_on_a_server_needs_no_checkpoint(tmp_path: Path) -> None:
    server = {"url": "http://127.0.0.1:8000/v1", "model": "guard"}
    spec = one("mine", specs={"mine": {"preset": "llama-guard-3-8b", "server": server}})
    assert spec.remote is not None
    assert not spec.engines


def test_a_preset_beside_a_reward_of_its_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="which is the preset's own name"):
        resolved("preset:xverify-1b", "xverify-1b", weights=[1.0, 2.0])


def test_presets_are_members_of_an_ensemble(place: Path) -> None:
    both = ["preset:xverify-1b", "preset:general-verifier"]
    found = resolved("pair", specs={"pair": {"kind": "ensemble", "of": both}})
    assert found.problems == []
    assert [(spec.name, spec.preset, spec.part_of) for spec in found.specs] == [
        ("pair", "", ""),
        ("xverify-1b", "xverify-1b", "pair"),
        ("general-verifier", "general-verifier", "pair"),
    ]
    assert found.specs[0].options.of == ["xverify-1b", "general-verifier"]


def test_a_section_with_the_prefix_is_told_to_drop_it() -> None:
    sections = {"preset:xverify-1b": {"sampling": {"max_tokens": 8}}}
    with pytest.raises(ConfigError, match=r"write reward\.specs\.xverify-1b"):
        resolved("preset:xverify-1b", specs=sections)


def test_a_label_that_yaml_makes_a_truth_value_is_refused(place: Path) -> None:
    for entries in ("label: yes", "label_weights: {yes: 1}"):
        sections = {"mine": {"preset": SKYWORK, **yaml.safe_load(entries)}}
        assert re.search("YAML .* yes, no, on, off.*: quote", problem("mine", specs=sections))


def test_an_unknown_preset_names_the_nearest() -> None:
    text = problem("preset:general-verifer")
    assert "'general-verifer' is no preset" in text
    assert "general-verifier" in text
    assert "rmrl show presets" in text


def test_code_of_a_checkpoint_runs_only_where_it_is_trusted(place: Path) -> None:
    text = problem("preset:armorm-llama3-8b")
    assert "type trainer.trust_remote_code=true" in text
    spec = one("preset:armorm-llama3-8b", trusted=True)
    engine = spec.engines["main"]
    assert (engine.name, engine.batch_invariant, engine.trust_remote_code) == ("hf", True, True)
    assert spec.labels is None


def test_a_gated_head_on_transformers(tmp_path: Path) -> None:
    """A checkpoint of ArmoRM's form with code of its own: what the gating network sums is the
    score, whatever else is in the batch."""
    write_gated_scorer(tmp_path)
    check_scalar_head(tmp_path)
    spec = EngineSpec(
        path=str(tmp_path),
        runner="pooling",
        name="hf",
        dtype="float32",
        max_model_len=None,
        max_num_seqs=8,
        max_num_batched_tokens=512,
        tensor_parallel_size=1,
        gpu_memory_utilization=0.5,
        kv_cache_bytes=0,
        device="cpu",
        threads=1,
        batch_invariant=True,
        trust_remote_code=True,
    )
    engine = HFEngine(spec)
    engine.start()
    sequences = [(5, 9, 30), (7,) * 40, (12, 13)]
    together = engine.classify([PoolingRequest(ids) for ids in sequences])
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path, trust_remote_code=True)
    model.eval()
    for ids, output in zip(sequences, together, strict=True):
        with torch.no_grad():
            hidden = model.model(torch.tensor([ids])).last_hidden_state[0]
            gates = model.gating(hidden[0]).softmax(-1)
            expected = float((gates * model.regression_layer(hidden[-1])).sum())
        assert output.value == pytest.approx(expected, abs=1e-5)
    assert len({round(output.value, 5) for output in together}) == 3


def test_a_preset_has_its_own_function() -> None:
    text = problem("mine", specs={"mine": {"preset": "xverify-1b", "function": "a.py:b"}})
    assert "reward.specs.mine.preset and reward.specs.mine.function are both given" in text


def test_the_table_at_the_start_tells_restrictive_licences(place: Path) -> None:
    table = reward_table([one("preset:xverify-1b"), one(f"preset:{SKYWORK}")])
    assert "licence of xverify-1b: CC-BY-NC-ND-4.0; no commercial use" in table
    assert table.count("licence of") == 1  # Apache-2.0 restricts nothing


def test_every_card_is_whole() -> None:
    for name, preset in presets().items():
        card = preset.card
        assert preset.spec["kind"] in REWARD_KINDS, name
        assert preset.path.count("/") == 1, name
        for text in (card.title, card.reads, card.trained, card.tried, card.source):
            assert text.strip(), name
        assert preset.licence.name.strip(), name
        assert card.paper.startswith("https://arxiv.org/abs/"), name
        assert set(card.licences) <= set(card.models), name
    assert len({preset.card.title for preset in presets().values()}) == len(
        {preset.file for preset in presets().values()}
    )


def test_the_page_has_the_table_of_the_files() -> None:
    page = (ROOT / "docs" / "rewards" / "catalogue.md").read_text(encoding="utf-8")
    assert "\n".join(catalogue_rows()) in page
    assert "\n".join(training_rows()) in page, "\n".join(training_rows())


def test_rmrl_show_lists_the_catalogue(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert show(["presets"]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() == catalogue_text()
    assert "preset:xverify-1b  IAAR-Shanghai/xVerify-1B-I  [licence: CC-BY-NC-ND-4.0]" in printed
    assert "terms: no commercial use, and no adapted versions" in printed
    assert "https://arxiv.org/abs/2504.10481" in printed


# --- through the scorer, on an engine that follows a script


async def judged(name: str, text: str, tokenizer: Any, *, truth: str | None = "1", **script: Any):
    spec = one(f"preset:{name}")
    engine = dataclasses.replace(
        spec.engines["main"],
        name=fakes.REWARD_ENGINE,
        kwargs={"text": text, **script},
        max_model_len=50_000,
    )
    batch = await scored(
        [dataclasses.replace(spec, engines={"main": engine})],
        rows("one answer", "another", truth=truth, group_size=2),
        tokenizer,
    )
    return list(batch.scores.results[0])


def facts(results: list[ScoreResult]) -> list[tuple[float | None, str]]:
    return [(result.value, result.status) for result in results]


async def test_a_verifier_through_the_scorer(place: Path, tokenizer: Any) -> None:
    name = "general-verifier"
    said = "Final Decision: No"
    assert facts(await judged(name, said, tokenizer)) == [(0.0, "ok")] * 2
    assert facts(await judged(name, "hm", tokenizer)) == [(None, "unparseable")] * 2
    assert facts(await judged(name, "hm", tokenizer, cut=True)) == [(None, "judge_truncated")] * 2
    (result, _) = await judged(name, said, tokenizer, truth=None)
    assert (result.value, result.status) == (None, "user_error")
    assert "no reference answer" in result.detail


async def test_an_answer_that_the_limit_broke_off_has_a_verdict_only_where_it_ends_with_one(
    place: Path, tokenizer: Any
) -> None:
    name = "prometheus-2-7b"
    aside = "The response would deserve a score of 5"
    cut = facts(await judged(name, aside, tokenizer, cut=True))
    assert cut == [(None, "judge_truncated")] * 2
    assert facts(await judged(name, aside, tokenizer)) == [(None, "unparseable")] * 2
    whole = facts(await judged(name, f"{aside}. [RESULT] 4", tokenizer, cut=True))
    assert whole == [(0.75, "ok")] * 2  # (4 - 1) / 4


async def test_a_judge_of_pairs_through_the_scorer(place: Path, tokenizer: Any) -> None:
    """It always prefers the first, so that both orders disagree: a tie, half a point each."""
    name = "rm-r1-qwen2.5-7b"
    results = await judged(name, "<answer>[[A]]</answer>", tokenizer)
    assert facts(results) == [(0.5, "ok")] * 2
    assert facts(await judged(name, "A is better", tokenizer)) == [(None, "unparseable")] * 2


async def test_a_guard_through_the_scorer(place: Path, tokenizer: Any) -> None:
    (result, _) = await judged("llama-guard-3-8b", "unsafe\nS2", tokenizer)
    assert (result.value, result.extra["categories"]) == (0.0, "S2")
