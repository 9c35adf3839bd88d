"""Turns of a response, scored one by one."""

from __future__ import annotations

from collections.abc import Sequence

from rmrl.rewards.kinds.shared.context import Counts
from rmrl.rewards.reads.setting import EACH, Reads
from rmrl.rewards.session.turns import reader_of
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Conversation, ScoreItem, ScoreResult, Step

TURNS = (
    {"role": "user", "content": "Q"},
    {"role": "assistant", "content": "abc"},
    {"role": "tool", "content": "long result"},
    {"role": "assistant", "content": "a"},
)


class FakeLength:
    """Scores a text by its length; "?" has no verdict."""

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        results: list[ScoreResult] = []
        for item in items:
            if item.response == "?":
                results.append(ScoreResult(value=None, status="timeout", detail="late"))
            else:
                results.append(ScoreResult(value=float(len(item.response))))
        return results


def spec_of(how: str) -> RewardSpec:
    return RewardSpec(name="length", kind="rule", weight=1.0, reads=Reads(per_turn=how))


def item(*turns: dict[str, str]) -> ScoreItem:
    return ScoreItem(
        prompt_id="0",
        messages=TURNS[:1],
        response=turns[-1]["content"],
        rm_prompt="Q",
        conversation=Conversation(messages=turns, first=1),
    )


async def test_each_turn_keeps_its_own_score():
    reader = reader_of(FakeLength(), spec_of(EACH), Counts())
    (result,) = await reader.score([item(*TURNS)])
    assert result.value == 2.0
    assert result.steps == (Step(0, 3.0, turn=0), Step(0, 1.0, turn=1))
    assert result.extra["turns"] == [3.0, 1.0]


async def test_a_mean_of_the_turns_goes_to_no_turn():
    reader = reader_of(FakeLength(), spec_of("mean"), Counts())
    (result,) = await reader.score([item(*TURNS)])
    assert (result.value, result.steps) == (2.0, ())


async def test_a_turn_without_a_verdict_leaves_no_turn_a_score():
    reader = reader_of(FakeLength(), spec_of(EACH), Counts())
    silent = (*TURNS[:3], {"role": "assistant", "content": "?"})
    (result,) = await reader.score([item(*silent)])
    assert (result.value, result.status, result.detail) == (None, "timeout", "turn 2: late")
    assert result.steps == ()


async def test_a_response_that_is_a_text_is_one_turn():
    reader = reader_of(FakeLength(), spec_of(EACH), Counts())
    plain = ScoreItem(prompt_id="0", messages=TURNS[:1], response="four", rm_prompt="Q")
    (result,) = await reader.score([plain])
    assert result.steps == (Step(0, 4.0, turn=0),)
