"""The section of one reward, read entry by entry."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.specs.names import Component
from rmrl.rewards.specs.section import Section, Surroundings, http_server


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


def test_a_kind_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="kind=generativ: not a kind"):
        section("generativ").check_kind()
    with pytest.raises(ConfigError, match="nowhere"):
        section("nowhere.at.all:Kind").check_kind()
    section("generative").check_kind()


def test_a_rule_has_nothing_to_cut_and_samples_nothing() -> None:
    with pytest.raises(ConfigError, match="nothing to cut"):
        section("rule", overlong="truncate_middle").overlong()
    with pytest.raises(ConfigError, match="samples nothing"):
        section("rule", sampling={"n": 4}).sampling(REWARD_KINDS["rule"])
    assert section("rule").sampling(REWARD_KINDS["rule"]) is None


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"n": 0}, r"sampling\.n=0: give at least 1 vote"),
        ({"max_tokens": 0}, r"sampling\.max_tokens=0: give at least 1 token"),
        ({"temperature": -0.5}, r"sampling\.temperature=-0\.5: must not be negative"),
        ({"top_p": 0.0}, r"sampling\.top_p=0\.0: give a share above 0 and at most 1"),
        ({"top_p": 1.5}, r"sampling\.top_p=1\.5: give a share above 0 and at most 1"),
        ({"n": 3}, r"n=3 with temperature=0 gives 3 equal votes"),
    ],
)
def test_votes_that_cannot_be_sampled(entries: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        section(sampling=entries).sampling(REWARD_KINDS["generative"])


def test_transforms_stand_in_one_place_only() -> None:
    assert section("rule").transforms() == ({"kind": "sigmoid"},)
    assert section("generative", transform="rank").transforms() == ({"kind": "rank"},)
    with pytest.raises(ConfigError, match="are both given"):
        section("rule", transform="rank").transforms()


def test_an_entry_that_no_kind_has() -> None:
    with pytest.raises(ConfigError, match=r"reward.specs.judge.smapling: no such entry.*sampling"):
        section(smapling={}).options(REWARD_KINDS["generative"])


def test_engine_settings_keep_the_shared_ones() -> None:
    where = "reward.specs.judge.engine"
    settings = section().engine_settings({"dtype": "float32"}, where)
    assert settings["dtype"] == "float32"
    assert settings["residency"] == RewardConfig().engine.residency
    with pytest.raises(ConfigError, match=f"{where}.residency=always: not a choice"):
        section().engine_settings({"residency": "always"}, where)


def test_a_server_is_instead_of_an_engine() -> None:
    server = {"url": "http://127.0.0.1:8000/v1", "model": "judge"}
    spec = section(server=server).server()
    assert spec == http_server({"wire": "openai", **server}, "reward.specs.judge.server")
    assert section().server() is None
    with pytest.raises(ConfigError, match="on a server or in an engine"):
        section(server=server, path="some/checkpoint").server()
    with pytest.raises(ConfigError, match="only judges that write text"):
        section("bradley_terry", server=server).server()


def test_entries_that_only_a_model_can_have() -> None:
    with pytest.raises(ConfigError) as caught:
        section("rule", path="p", engine={"dtype": "float32"}).refuse_model_entries("a rule")
    assert len(caught.value.problems) == 2
    section("rule").refuse_model_entries("a rule")


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: section("teacher").engine_settings({"name": "sglang"}, "w.engine"),
            r"w\.engine\.name=sglang: this engine gives no log-probabilities of given tokens",
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
            r"reads=answer: a teacher rates every token",
        ),
        (
            lambda: section("teacher", sampling={"n": 2}).sampling(REWARD_KINDS["teacher"]),
            "a teacher reward samples nothing",
        ),
    ],
)
def test_what_a_teacher_cannot_have(ask: Any, said: str):
    with pytest.raises(ConfigError, match=said):
        ask()
