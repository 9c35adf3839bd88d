"""Rewards that an environment gave."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.entries.resolve import resolve_rewards
from rmrl.rewards.entries.section import Surroundings
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Conversation, Prompt, ScoreResult
from tests.rewards.parts import make_scorer

PROMPT = Prompt(id="p", messages=[{"role": "user", "content": "Q"}], token_ids=())


def specs(*names: str, **settings: dict[str, object]) -> list[RewardSpec]:
    surroundings = Surroundings(device="cpu", threads=1, functions_dirs=[Path(__file__).parent])
    resolved = resolve_rewards(RewardConfig(models=list(names), specs=settings), surroundings)
    if resolved.problems:
        raise ConfigError(resolved.problems)
    return resolved.specs


async def scored(found: list[RewardSpec], rewards: dict[str, float | None]) -> list[ScoreResult]:
    turns = (*PROMPT.messages, {"role": "assistant", "content": "a"})
    talk = Conversation(messages=turns, first=1, rewards=rewards) if rewards else None
    row = ResponseRow(prompt=dataclasses.replace(PROMPT, conversation=talk), text="a")
    scorer = make_scorer(found, None)
    try:
        batch = await scorer.score([row])
    finally:
        await scorer.close()
    return [column[0] for column in batch.scores.results]


async def test_a_reward_is_found_by_its_name():
    both = specs("env.right", "env.reward")
    assert [(spec.kind, spec.name) for spec in both] == [
        ("environment", "env.right"),
        ("environment", "env.reward"),
    ]
    right, total = await scored(both, {"right": 0.5, "reward": 2.0})
    assert (right.value, total.value) == (0.5, 2.0)


async def test_an_entry_may_name_it():
    (result,) = await scored(
        specs("mine", mine={"kind": "environment", "reward": "right"}), {"right": 0.25}
    )
    assert result.value == 0.25


async def test_one_that_was_not_computed_is_skipped():
    (result,) = await scored(specs("env.right"), {"right": None})
    assert (result.status, result.detail) == (
        "provider_error",
        "the environment did not compute 'right'",
    )


async def test_one_that_is_not_there_names_those_that_are():
    (result,) = await scored(specs("env.rihgt"), {"right": 1.0, "brief": 0.0})
    assert result.status == "user_error"
    assert "gave no reward 'rihgt'; did you mean 'right'? known: brief, right" in result.detail


async def test_a_row_of_no_environment():
    (result,) = await scored(specs("env.right"), {})
    assert result.status == "user_error"
    assert "no environment played row p" in result.detail


@pytest.mark.parametrize("entry", [{"reads": "last"}, {"per": "turn"}])
def test_it_reads_no_response(entry: dict[str, str]):
    with pytest.raises(ConfigError, match="a reward of kind environment reads no response"):
        specs("mine", mine={"kind": "environment", "reward": "right", **entry})
