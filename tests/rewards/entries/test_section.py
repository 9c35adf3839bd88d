"""The section of one reward, read entry by entry."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.entries.names import Component
from rmrl.rewards.entries.section import Section, Surroundings, http_server


def section(kind: str = "generative", **entries: Any) -> Section:
    surroundings = Surroundings(device="cpu", threads=2, functions_dirs=[])
    config = RewardConfig(transforms={"shaped": {"kind": "sigmoid"}})
    name = "shaped" if kind == "rule" else "judge"
    return Section(
        component=Component(name=name, model_name=name),
        model_index=0,
        kind=kind,
        entries=entries,
        dropin=None,
        config=config,
        surroundings=surroundings,
    )


def test_fields_of_every_kind_and_their_defaults() -> None:
    fields = section(gate="format", counts_at={"gsm8k": 1}).shared(timeout_s=60.0, needs_model=True)
    assert fields["gates"] == ("format",)
    assert fields["counts_at"] == {"gsm8k": 1.0}
    assert fields["timeout_s"] == 60.0
    assert fields["overlong"] == "missing"
    assert fields["rm_prompt"] is None


SERVER = {"url": "http://127.0.0.1:8000/v1", "model": "judge"}


def sampled(kind: str, **entries: Any) -> Any:
    return section(kind, sampling=entries).sampling()


def engine_settings(kind: str, **entries: Any) -> dict[str, Any]:
    return section(kind).engine_settings(entries, "reward.specs.judge.engine")


def test_a_rubric_for_a_classifier_is_answered_with_what_to_type(tiny_reward_llama: Path) -> None:
    scorer = section("bradley_terry", path=str(tiny_reward_llama), rubric="Is it good?")
    with pytest.raises(ConfigError) as caught:
        scorer.options()
    assert (
        "reward.specs.judge.rubric: no such entry of kind=bradley_terry (of critique, generative,"
        f" group); '{tiny_reward_llama}' is a LlamaForSequenceClassification, which writes no text"
        " and reads no rubric: leave rubric out, or give a *ForCausalLM checkpoint,"
        " reward.specs.judge.path=<folder or hub id>"
    ) in str(caught.value)


def test_an_entry_of_another_kind_says_which() -> None:
    with pytest.raises(ConfigError, match=r"leave it out, or type reward.specs.judge.kind=rubric"):
        section("generative", criteria=["good"]).options()


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (
            lambda: section("generativ").check_kind(),
            "kind: nothing named 'generativ'; did you mean 'generative'",
        ),
        (lambda: section("nowhere.at.all:Kind").check_kind(), "nowhere"),
        (
            lambda: section("rmrl.types:ScoreItem").check_kind(),
            "kind=rmrl.types:ScoreItem: it does not extend rmrl.rewards.kinds.kind.Kind; write"
            " `class ScoreItem(Kind)`",
        ),
        (lambda: section("rule", overlong="truncate_middle").overlong(), "nothing to cut"),
        (lambda: sampled("rule", n=4), "samples nothing"),
        (lambda: sampled("generative", n=0), "sampling.n=0: give at least 1 vote"),
        (lambda: sampled("generative", max_tokens=0), "sampling.max_tokens=0: give at least 1"),
        (lambda: sampled("generative", temperature=-0.5), "temperature=-0.5: must not be negative"),
        (lambda: sampled("generative", top_p=0.0), "sampling.top_p=0.0: give a share above 0"),
        (lambda: sampled("generative", top_p=1.5), "sampling.top_p=1.5: give a share above 0"),
        (lambda: sampled("generative", n=3), "n=3 with temperature=0 gives 3 equal votes"),
        (lambda: section("rule", transform="rank").transforms(), "are both given"),
        (
            lambda: section(smapling={}).options(),
            "reward.specs.judge.smapling: no such entry; did you mean 'sampling'?",
        ),
        (
            lambda: engine_settings("generative", residency="always"),
            "reward.specs.judge.engine.residency='always': not a choice",
        ),
        (
            lambda: section(server=SERVER, path="some/checkpoint").server(),
            "on a server or in an engine",
        ),
        (lambda: section("bradley_terry", server=SERVER).server(), "only judges that write text"),
        (
            lambda: engine_settings("teacher", name="sglang"),
            "engine.name=sglang: this engine gives no log-probabilities of given tokens",
        ),
        (
            lambda: section("teacher", server={"url": "http://127.0.0.1:1/v1"}).server(),
            "a teacher reward runs in an engine",
        ),
        (
            lambda: section("teacher", overlong="truncate_left").overlong(),
            "a teacher rates every token of a response, so nothing is cut",
        ),
        (
            lambda: section("teacher", reads="answer").reads(),
            "reads=answer: a teacher rates every token",
        ),
        (lambda: sampled("teacher", n=2), "a teacher reward samples nothing"),
    ],
)
def test_entries_that_cannot_be(read: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        read()


def test_entries_that_can() -> None:
    section("generative").check_kind()
    assert section("rule").sampling() is None
    assert section("rule").transforms() == ({"kind": "sigmoid"},)
    assert section("generative", transform="rank").transforms() == ({"kind": "rank"},)


def test_engine_settings_keep_the_shared_ones() -> None:
    settings = engine_settings("generative", dtype="float32")
    assert settings["dtype"] == "float32"
    assert settings["residency"] == RewardConfig().engine.residency


def test_a_server_is_instead_of_an_engine() -> None:
    spec = section(server=SERVER).server()
    assert spec == http_server({"wire": "openai", **SERVER}, "reward.specs.judge.server")
    assert section().server() is None


def test_entries_that_only_a_model_can_have() -> None:
    with pytest.raises(ConfigError) as caught:
        section("rule", path="p", engine={"dtype": "float32"}).refuse_model_entries("a rule")
    assert len(caught.value.problems) == 2
    section("rule").refuse_model_entries("a rule")
