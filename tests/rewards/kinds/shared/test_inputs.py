"""Rendering in parts, on a thread, beside the engines."""

from __future__ import annotations

import asyncio
import copy
import threading
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import EngineLostError
from rmrl.rewards.kinds.bradley_terry.reward import BradleyTerryReward
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.shared import inputs as module
from rmrl.rewards.kinds.shared.inputs import RenderThread, answers_in_parts
from rmrl.rewards.kinds.shared.tokenizing import (
    UnreadableInputError,
    tokenize,
    tokenize_all,
    tokenize_ends,
)
from tests.patience import PATIENCE_S
from tests.rewards.kinds.scripted import Scripted, context, dropin, said, spec
from tests.rewards.parts import chat_tokenizer, items

WHERE = "reward 'r'"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    return chat_tokenizer(tmp_path / "tokenizer")


def test_many_inputs_have_the_tokens_that_each_has_alone(tokenizer: Any) -> None:
    turns = [{"role": "user", "content": "hi"}]
    reads = [
        "plain", f"{tokenizer.bos_token}own begin", ("a", "b"), ("a", ""), ("a", "c"), turns,
        [3, 4], "plain again", "", turns,
    ]  # fmt: skip
    together = tokenize_all(reads, tokenizer, generation_prompt=True, where=WHERE)
    alone = [tokenize(read, tokenizer, generation_prompt=True, where=WHERE) for read in reads]
    assert together == alone
    # Characters are tokens: <s> p l a i n and the end that the tokenizer adds.
    assert [len(row.token_ids) for row in together[:1]] == [len(tokenizer("plain")["input_ids"])]
    assert together[3].text == "a\n---\n"


def test_the_first_unreadable_input_is_the_error(tokenizer: Any) -> None:
    with pytest.raises(UnreadableInputError, match="returned 7 "):
        tokenize_all(["fine", 7, 8], tokenizer, generation_prompt=True, where=WHERE)


async def test_a_batch_is_sent_in_parts_and_scored_as_in_one(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"response {i}" for i in range(7)]

    def score_of(request: Any) -> Any:
        return [said(str(len(request.text) + request.token_ids[-20]))]

    async def scores(part_rows: int) -> tuple[list[Any], list[int]]:
        monkeypatch.setattr(module, "PART_ROWS", part_rows)
        calls = Scripted(score_of)
        options = GenerativeReward.Options(rubric="good", scale=[])
        reward = GenerativeReward.from_spec(
            spec("generative", options=options), context(tokenizer, main=calls)
        )
        return await reward.score(items(*texts)), [len(asked[1]) for asked in calls.asked]

    whole, sizes = await scores(100)
    assert sizes == [7]
    parts, sizes = await scores(3)
    assert sizes == [3, 3, 1]
    assert parts == whole
    parts, sizes = await scores(7)
    assert (parts, sizes) == (whole, [7])


async def test_rm_preprocess_gets_all_responses_though_they_are_sent_in_parts(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 2)
    code = (
        "def rm_preprocess(prompts, responses, tokenizer):\n"
        "    return [f'{len(responses)}' for _ in responses]\n"
    )
    calls = Scripted(lambda request: [said("1")])
    reward = GenerativeReward.from_spec(
        spec("generative", dropin=dropin(tmp_path, code)), context(tokenizer, main=calls)
    )
    await reward.score(items("a", "b", "c"))
    assert [len(asked[1]) for asked in calls.asked] == [2, 1]
    assert {request.text for request in calls.requests} == {"3"}


async def test_a_part_that_cannot_be_rendered_ends_the_calls_of_the_others(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 1)
    ended: list[str] = []

    async def send(part: list[str]) -> list[str]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.extend(part)
            raise
        return part

    def parts() -> Any:
        yield ["first"]
        raise UnreadableInputError("the second")

    environment = context(tokenizer)
    environment.render = RenderThread()
    with pytest.raises(UnreadableInputError, match="the second"):
        await answers_in_parts(parts(), send, rows=2, context=environment, role="main")
    assert ended == ["first"]


async def test_after_a_part_that_failed_no_other_is_rendered_or_sent(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 1)
    rendered: list[str] = []
    sent: list[str] = []
    cancelled: list[str] = []
    failed = threading.Event()

    async def send(part: list[str]) -> list[str]:
        sent.extend(part)
        if part == ["second"]:
            failed.set()
            raise EngineLostError("the engine is broken")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.extend(part)
            raise
        return part

    def parts() -> Any:
        for name in ("first", "second", "third", "fourth"):
            if name == "third":
                assert failed.wait(PATIENCE_S)
            rendered.append(name)
            yield [name]

    environment = context(tokenizer)
    environment.render = RenderThread()
    answers = answers_in_parts(parts(), send, rows=4, context=environment, role="main")
    with pytest.raises(EngineLostError, match="the engine is broken"):
        await asyncio.wait_for(answers, PATIENCE_S)
    assert rendered == ["first", "second", "third"]
    assert sent == ["first", "second"]
    assert cancelled == ["first"]


async def test_inputs_are_rendered_off_the_event_loop(tokenizer: Any, tmp_path: Path) -> None:
    code = (
        "import threading\n"
        "def rm_preprocess(prompts, responses, tokenizer):\n"
        "    return [threading.current_thread().name for _ in responses]\n"
    )
    calls = Scripted(lambda request: [said("1")])
    environment = context(tokenizer, main=calls)
    environment.render = RenderThread()
    reward = GenerativeReward.from_spec(
        spec("generative", dropin=dropin(tmp_path, code)), environment
    )
    await reward.score(items("a"))
    assert [request.text for request in calls.requests] == ["render"]


async def test_the_render_thread_raises_what_its_work_raises_and_goes_on() -> None:
    render = RenderThread()

    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await render(fails)
    name = await render(lambda: threading.current_thread().name)
    assert name == "render"
    render.close()


async def test_a_render_thread_that_was_closed_runs_what_comes_later() -> None:
    render = RenderThread()
    render.close()
    assert await asyncio.wait_for(render(lambda: 3), PATIENCE_S) == 3
    render.close()
    render.close()
    assert await asyncio.wait_for(render(lambda: 4), PATIENCE_S) == 4
    render.close()


async def test_scalar_inputs_are_sent_in_parts(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmrl.inference.reward_engine_base import ValueOutput

    monkeypatch.setattr(module, "PART_ROWS", 2)
    calls = Scripted(lambda request: ValueOutput(float(len(request.token_ids)), 1))
    reward = BradleyTerryReward.from_spec(spec("bradley_terry"), context(tokenizer, main=calls))
    results = await reward.score(items("a", "bb", "ccc"))
    shortest = results[0].value
    assert shortest is not None
    # One more character is one more token.
    expected = [shortest, shortest + 1.0, shortest + 2.0]
    assert [result.value for result in results] == expected
    assert [len(asked[1]) for asked in calls.asked] == [2, 1]


class _Counting:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.characters = 0

    def __call__(self, texts: list[str], *more: Any, **options: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self.tokenizer(texts, *more, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def _asking(response: str, criteria: list[str]) -> list[Any]:
    """Messages that end in one of the criteria each."""
    reads: list[Any] = []
    for criterion in criteria:
        content = f"Response:\n{response}\n\nCriterion:\n{criterion}\n\nAnswer."
        reads.append([{"role": "user", "content": content}])
    return reads


@pytest.mark.parametrize("joined", [False, True])
def test_ends_behind_one_beginning_have_the_tokens_of_whole_inputs(
    tokenizer: Any, joined: bool
) -> None:
    """`joined`: a token spans the beginning of the ends, so all inputs are tokenized whole."""
    words = copy.deepcopy(tokenizer)
    if joined:
        words.add_tokens(["\n\nCriterion:"])
    criteria = [f"It is {i}." for i in range(10)]
    groups = [_asking("x" * 1000, criteria), _asking("y", ["a"]), _asking("Criterion:\n", criteria)]
    plain = [f"{read[0]['content']}" for read in groups[0]]
    odd = _asking("z", ["Criterion:\n", "b", "c"])
    counting = _Counting(words)
    groups += [plain, odd]
    ends = tokenize_ends(groups, counting, end="Criterion:\n", where="here")
    for group, rendered in zip(groups, ends, strict=True):
        expected = tokenize_all(group, words, generation_prompt=True, where="here")
        assert list(rendered) == expected
    # two whole inputs and ten ends for each of the two long groups, where it is possible
    assert (counting.characters > 20_000) == joined
    assert joined or counting.characters < 10_000


async def test_a_part_is_rendered_when_there_is_room_for_its_requests(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 1)
    under_way = 0
    most = 0

    async def send(part: list[int]) -> list[int]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return part

    def parts() -> Any:
        for number in range(8):
            yield [number]

    answers = answers_in_parts(
        parts(), send, rows=8, context=context(tokenizer), role="main", at_most=2
    )
    assert await asyncio.wait_for(answers, PATIENCE_S) == (list(range(8)), list(range(8)))
    assert most == 2
