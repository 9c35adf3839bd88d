"""A judge's texts become scores, or the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.engines.base import GenerateRequest, TextOutput
from rmrl.rewards.engines.merge import MergedCalls
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.generative import GenerativeReward
from rmrl.rewards.kinds.rule_pool import RulePool
from rmrl.types import Sampling, ScoreResult
from tests.rewards.parts import JUDGE, always, items, judge

Answer = Callable[[GenerateRequest], list[TextOutput]]
Ask = Callable[..., Any]


def said(text: str, finish_reason: str = "stop") -> TextOutput:
    return TextOutput(text, finish_reason, 10, len(text))


@pytest.fixture
def ask(tokenizer: Any, tmp_path: Path) -> Ask:
    """ask(outputs of each request, responses...): the results."""

    async def run(outputs: Sequence[TextOutput], *responses: str, code: str = JUDGE, temperature: float = 0.0) -> list[ScoreResult]:
        async def engine(method: str, requests: list[GenerateRequest]) -> list[list[TextOutput]]:
            assert method == "generate"
            return [list(outputs) for _ in requests]

        spec = judge(tmp_path, code=code, sampling=Sampling(max_tokens=16, temperature=temperature, n=len(outputs)))
        context = KindContext(pool=RulePool(1), tokenizer=always(tokenizer), calls=MergedCalls(engine, participants=1))
        return await GenerativeReward.from_spec(spec, context).score(items(*responses))

    return run


async def test_a_verdict(ask: Ask):
    (result,) = await ask([said(" 7 ")], "r")
    assert (result.value, result.status, result.raw_text, result.rendered, result.tokens_in, result.tokens_out) == (
        7.0,
        "ok",
        " 7 ",
        "Q r",
        10,
        3,
    )


@pytest.mark.parametrize(
    ("output", "status", "words"),
    [
        (said("maybe"), "unparseable", "no verdict in 'maybe'"),
        (said("it is qui", "length"), "judge_truncated", "raise sampling.max_tokens"),
        (said("<think>so 7", "length"), "judge_truncated", "inside its thinking block"),
        (said("<think>so 7"), "unparseable", "no verdict"),
        (said("", "overlong"), "overlong", "max_model_len"),
    ],
)
async def test_why_there_is_no_verdict(ask: Ask, output: TextOutput, status: str, words: str):
    (result,) = await ask([output], "r")
    assert (result.value, result.status) == (None, status)
    assert words in result.detail


async def test_a_verdict_at_the_token_limit_counts(ask: Ask):
    assert (await ask([said("7", "length")], "r"))[0].value == 7.0


async def test_thinking_is_not_read(ask: Ask):
    assert (await ask([said("<think>3</think> 7")], "r"))[0].value == 7.0
    assert (await ask([said("3</think>7")], "r"))[0].value == 7.0


async def test_thinking_that_the_prompt_opened_is_not_read(ask: Ask):
    code = JUDGE.replace('{response}"', '{response}<think>\\n"')
    (result,) = await ask([said("7", "length")], "r", code=code)
    assert (result.value, result.status) == (None, "judge_truncated")
    assert (await ask([said("3</think>\n7")], "r", code=code))[0].value == 7.0


async def test_votes_are_averaged_over_those_that_can_be_read(ask: Ask):
    (result,) = await ask([said("4"), said("none"), said("7")], "r", temperature=1.0)
    assert (result.value, result.tokens_out) == (5.5, 6)  # (4 + 7) / 2
    assert result.raw_text == "4\n---\nnone\n---\n7"
    (result,) = await ask([said("none"), said("none")], "r", temperature=1.0)
    assert result.status == "unparseable"


async def test_columns_are_kept_with_and_without_a_verdict(ask: Ask):
    code = JUDGE + "\ndef rm_postprocess(results):\n    return [{'score': None if r == 'x' else 1, 'said': r} for r in results]\n"
    (result,) = await ask([said("y")], "r", code=code)
    assert (result.value, result.extra) == (1.0, {"said": "y"})
    (result,) = await ask([said("x")], "r", code=code)
    assert (result.status, result.extra) == ("unparseable", {"said": "x"})


async def test_a_return_value_that_is_no_score(ask: Ask):
    (result,) = await ask([said("y")], "r", code=JUDGE + "\ndef rm_postprocess(results):\n    return ['good' for r in results]\n")
    assert result.status == "user_error"
    assert result.detail.startswith("rm_postprocess returned 'good' (str)")


async def test_an_empty_input_costs_its_own_row(ask: Ask):
    code = JUDGE.replace('[f"{prompt} {response}"', "[response")
    results = await ask([said("7")], "", "r", "", code=code)
    assert [r.status for r in results] == ["user_error", "ok", "user_error"]


async def test_no_responses_reach_no_drop_in(ask: Ask):
    code = JUDGE + "\ndef rm_postprocess(results):\n    return [max(results)]\n"
    assert await ask([said("7")], code=code) == []
