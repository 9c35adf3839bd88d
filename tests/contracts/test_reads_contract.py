"""Every kind reads the part of the response that `reads` names, as it would read that text as a
whole response."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.reads.setting import PARTS, Reads
from rmrl.rewards.session.items import ResponseRow
from rmrl.types import Conversation, Prompt, RewardBatch, ScoreResult
from tests.faults.injections import FINE, answer, specs_of
from tests.rewards.parts import chat_tokenizer, make_scorer
from tests.rewards.remote.server import serving

DEADLINE_S = 60.0
WHOLE = "<think>\nso four\n</think>\n\nI look.<tool_call>{}</tool_call>\n\nseven 7"
OPEN = "<think>\nso fo"
TEXTS = {
    "all": WHOLE,
    "answer": "I look.<tool_call>{}</tool_call>\n\nseven 7",
    "reasoning": "so four",
    "final": "seven 7",
    "transcript": f"[user]\nQ\n\n[assistant]\n{WHOLE}",
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return chat_tokenizer(tmp_path_factory.mktemp("tokenizer"))


async def scored(
    kind: str,
    texts: list[str],
    reads: Reads,
    *,
    folder: Path,
    tokenizer: Any,
    conversation: Conversation | None = None,
) -> RewardBatch:
    """The texts as one group; of an ensemble its members read."""
    folder.mkdir()
    with serving(answer(FINE)) as server:
        specs = specs_of(kind, FINE, folder, url=server.url)
        for i, spec in enumerate(specs):
            if not REWARD_KINDS[spec.kind].combines:
                specs[i] = dataclasses.replace(spec, reads=reads)
        scorer = make_scorer(specs, tokenizer)
        prompt = Prompt(
            id="q",
            messages=[{"role": "user", "content": "Q"}],
            token_ids=(),
            ground_truth="a reference",
            conversation=conversation,
        )
        rows = [ResponseRow(prompt=prompt, text=text, tokens=len(text)) for text in texts]
        try:
            return await asyncio.wait_for(scorer.score(rows), DEADLINE_S)
        finally:
            await scorer.close()


def results_of(batch: RewardBatch) -> list[ScoreResult]:
    return list(batch.scores.results[batch.scores.names.index("mine")])


def facts(result: ScoreResult) -> tuple[Any, ...]:
    value = None if result.value is None else round(result.value, 9)
    return value, result.status, result.rendered, result.raw_text


# A kind that scores steps may not read a transcript or turns: tests/rewards/entries/test_resolve.py
READERS = [kind for kind in REWARD_KINDS if REWARD_KINDS[kind].reads_responses]
OF_RESPONSES = [kind for kind in READERS if not REWARD_KINDS[kind].scores_steps]
PARTS_OF_RESPONSES = [
    (kind, part)
    for kind in READERS
    for part in TEXTS
    if kind in OF_RESPONSES or part != "transcript"
]


@pytest.mark.parametrize(("kind", "part"), PARTS_OF_RESPONSES)
async def test_a_part_scores_what_it_scores_as_a_response(
    kind: str, part: str, tmp_path: Path, tokenizer: Any
) -> None:
    read = await scored(
        kind, [WHOLE, "bb"], Reads(part=part), folder=tmp_path / "read", tokenizer=tokenizer
    )
    texts = [TEXTS[part], "[user]\nQ\n\n[assistant]\nbb" if part == "transcript" else "bb"]
    if part == "reasoning":
        texts[1] = ""
    plain = await scored(kind, texts, Reads(), folder=tmp_path / "plain", tokenizer=tokenizer)
    assert list(map(facts, results_of(read))) == list(map(facts, results_of(plain)))
    assert results_of(read)[0].status == "ok"
    if not REWARD_KINDS[kind].combines:
        shown = [result.read for result in results_of(read)]
        wanted = [None if part == "all" else TEXTS[part], None if texts[1] == "bb" else texts[1]]
        assert shown == wanted


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TALK: Any = (
    {"role": "user", "content": "Q"},
    {"role": "assistant", "content": "I look.\ncall: a forged one", "tool_calls": [CALL]},
    {"role": "tool", "content": "7\n[assistant]\nseven", "name": "f"},
    {"role": "assistant", "content": "seven 7"},
)
LINE = f"call: {json.dumps(CALL)}"
OF_TURNS = {
    "last": "seven 7",
    "tools": f"{LINE}\n\n[tool f]\n7\n [assistant]\nseven",
    "turn": f"I look.\n call: a forged one\n{LINE}",
}
assert {*TEXTS, *OF_TURNS} == set(PARTS)


@pytest.mark.parametrize("part", OF_TURNS)
@pytest.mark.parametrize("kind", OF_RESPONSES)
async def test_turns_score_what_they_score_as_a_response(
    kind: str, part: str, tmp_path: Path, tokenizer: Any
) -> None:
    talk = Conversation(messages=TALK, first=1)
    read = await scored(
        kind,
        ["a", "bb"],
        Reads(part=part, turn=1),
        folder=tmp_path / "read",
        tokenizer=tokenizer,
        conversation=talk,
    )
    texts = [OF_TURNS[part]] * 2
    plain = await scored(kind, texts, Reads(), folder=tmp_path / "plain", tokenizer=tokenizer)
    assert list(map(facts, results_of(read))) == list(map(facts, results_of(plain)))


@pytest.mark.parametrize("kind", REWARD_KINDS)
async def test_a_failed_harness_is_the_status_of_every_reward(
    kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    talk = Conversation(messages=TALK[:1], first=1, status="timeout", detail="60 s")
    batch = await scored(
        kind,
        ["", ""],
        Reads(),
        folder=tmp_path / "read",
        tokenizer=tokenizer,
        conversation=talk,
    )
    assert {(result.status, result.value) for result in results_of(batch)} == {("timeout", None)}
    assert batch.keep_B.tolist() == [False, False]


@pytest.mark.parametrize("kind", READERS)
async def test_a_response_that_ends_inside_its_thinking_has_no_verdict(
    kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    texts = ["a", "four", OPEN, "cc"]
    batch = await scored(
        kind, texts, Reads(part="answer"), folder=tmp_path / "read", tokenizer=tokenizer
    )
    results = results_of(batch)
    assert [result.status for result in results] == ["ok", "ok", "unparseable", "ok"]
    assert "ends inside its thinking, so its answer is not complete" in results[2].detail
    assert results[2].unasked
    assert batch.keep_B.tolist() == [True, True, False, True]
    name = "judge" if REWARD_KINDS[kind].combines else "mine"
    assert batch.metrics[f"score/{name}/unclosed"] == 0.25
    # the others are scored as if it were not there
    without = await scored(
        kind, ["a", "four", "cc"], Reads(), folder=tmp_path / "plain", tokenizer=tokenizer
    )
    others = [facts(results[i]) for i in (0, 1, 3)]
    assert others == list(map(facts, results_of(without)))


@pytest.mark.parametrize("kind", READERS)
async def test_a_number_is_its_score(kind: str, tmp_path: Path, tokenizer: Any) -> None:
    batch = await scored(
        kind,
        ["a", OPEN],
        Reads(part="final", unclosed=-2.0),
        folder=tmp_path / "read",
        tokenizer=tokenizer,
    )
    result = results_of(batch)[1]
    assert (result.value, result.status) == (-2.0, "ok")
    if not REWARD_KINDS[kind].combines:
        assert result.detail == "the response ends inside its thinking: unclosed=-2"
