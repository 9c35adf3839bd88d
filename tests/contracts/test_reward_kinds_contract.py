"""What every kind of reward must hold, over all names of the table, through the scorer and engines
that follow a script."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.session.items import ResponseRow
from rmrl.types import Prompt, ScoreResult
from tests.faults.injections import FINE, Injection, answer, played, specs_of
from tests.rewards.parts import chat_tokenizer, make_scorer
from tests.rewards.remote.server import serving

TEXTS = ["a", "bb", "", "a", "é 漢字 🙂 \u202e\x00", "skip", "</s><|im_end|>", "x" * 20_000]
DEADLINE_S = 60.0
CHOSEN = Injection(meta=True)
"""A judge of several votes, with a second model that keeps the best."""
EVERY = [*((kind, FINE) for kind in REWARD_KINDS), ("generative", CHOSEN), ("group", CHOSEN)]
NAMES = [*REWARD_KINDS, "generative and meta", "group and meta"]
Score = Callable[..., Any]
PROMPT = Prompt(
    id="q",
    messages=[{"role": "user", "content": "Q"}],
    token_ids=(),
    ground_truth="a reference",
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return chat_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(params=EVERY, ids=NAMES)
def score(request: pytest.FixtureRequest, tokenizer: Any, tmp_path: Path) -> Iterator[Score]:
    """Texts, all of one group, and perhaps their prompt -> the kind's results."""
    kind, injection = request.param
    with serving(answer(injection)) as server:
        specs = specs_of(kind, injection, tmp_path, url=server.url)

        async def run(texts: list[str], prompt: Prompt = PROMPT) -> list[ScoreResult]:
            if kind == "environment":
                prompt = dataclasses.replace(prompt, conversation=played(prompt, mine=1.0))
            scorer = make_scorer(specs, tokenizer)
            try:
                batch = await asyncio.wait_for(
                    scorer.score([ResponseRow(prompt=prompt, text=text) for text in texts]),
                    DEADLINE_S,
                )
            finally:
                await scorer.close()
            return list(batch.scores.results[batch.scores.names.index("mine")])

        yield run


def facts(result: ScoreResult) -> tuple[Any, str]:
    return None if result.value is None else round(result.value, 9), result.status


async def test_one_result_per_item_and_a_value_exactly_when_ok(score: Score) -> None:
    results = await score(TEXTS)
    assert len(results) == len(TEXTS)
    assert all((r.value is None) == (r.status != "ok") for r in results)
    assert all(r.detail for r in results if r.status != "ok")
    assert sum(r.status == "ok" for r in results) >= 5


async def test_results_follow_their_items(score: Score) -> None:
    order = [3, 7, 0, 6, 1, 5, 4, 2]
    straight, shuffled = await score(TEXTS), await score([TEXTS[i] for i in order])
    assert [facts(r) for r in shuffled] == [facts(straight[i]) for i in order]


async def test_equal_items_get_equal_results(score: Score) -> None:
    results = await score(TEXTS)
    assert facts(results[0]) == facts(results[3])


async def test_no_items(score: Score) -> None:
    assert await score([]) == []


async def test_half_a_letter_is_read_as_a_replacement_character(score: Score) -> None:
    """JSON can state the half of a UTF-16 pair, which no tokenizer takes: in the response, in the
    prompts and in what the row has beside them."""
    read: list[list[tuple[Any, ...]]] = []
    for letter in ("\ud83d", "\ufffd"):
        prompt = dataclasses.replace(
            PROMPT,
            messages=[{"role": "user", "content": f"Q {letter}"}],
            rm_prompts={"": f"Q {letter}?"},
            ground_truth=f"a reference {letter}",
            extra_info={"notes": [{letter: f"n {letter}"}]},
        )
        results = await score([f"a {letter}", "bb"], prompt)
        read.append([(*facts(result), result.rendered, result.raw_text) for result in results])
    assert read[0] == read[1]
    assert [status for _, status, *_ in read[0]] == ["ok", "ok"]
