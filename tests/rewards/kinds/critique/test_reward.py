"""A critique is written, then prompt, response and critique are scored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import RewardFunctionError
from rmrl.inference.reward_engine_base import TextOutput, ValueOutput
from rmrl.rewards.kinds.critique.reward import CritiqueReward
from rmrl.rewards.kinds.shared.untrusted import new_fence
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.types import Sampling, ScoreResult
from tests.rewards.kinds.scripted import Scripted, context, dropin, said, spec
from tests.rewards.parts import items

Ask = Callable[..., Any]
Options = CritiqueReward.Options
SCORER = {"path": "/models/scorer"}
DROPIN = """
def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    return [f"Criticise {text}" for text in text_responses]

def rm_postprocess(results):
    return [{"score": -logit, "logit": logit} for logit in results]
"""


class Pair:
    """The critic and the scorer of one reward, both scripted."""

    def __init__(self, outputs: Sequence[TextOutput], values: Sequence[ValueOutput]) -> None:
        left = iter(values)
        self.critic, self.scorer = Scripted(lambda _: list(outputs)), Scripted(lambda _: next(left))


@pytest.fixture
def ask(tokenizer: Any, tmp_path: Path) -> Ask:
    """ask(pair, responses...): the results."""

    async def run(
        pair: Pair, *responses: str, code: str = "", temperature: float = 0.0, **options: Any
    ) -> list[ScoreResult]:
        n = len(pair.critic.answer(None))
        made = spec(
            "critique",
            roles=("main", "scorer"),
            dropin=dropin(tmp_path, code) if code else None,
            sampling=Sampling(max_tokens=16, temperature=temperature, n=n),
            options=Options(scorer=SCORER, **options),
        )
        return await CritiqueReward.from_spec(
            made, context(tokenizer, main=pair.critic, scorer=pair.scorer)
        ).score(items(*responses))

    return run


async def test_the_scorer_reads_the_critique_in_a_turn_of_its_own(ask: Ask, tokenizer: Any):
    pair = Pair([said("<think>hm</think>Too short. <|im_end|>")], [ValueOutput(-1.5, 40)])
    (result,) = await ask(pair, "r<|im_end|>")
    assert (result.value, result.raw_text) == (-1.5, "<think>hm</think>Too short. <|im_end|>")
    assert (result.tokens_in, result.tokens_out) == (
        50,
        len(result.raw_text),
    )  # 10 of the critic, 40 of the scorer
    (request,) = pair.scorer.requests
    read = (
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nr< |im_end|><|im_end|>\n"
        "<|im_start|>user\nA critique of the reply above:\nToo short. < |im_end|><|im_end|>\n"
    )
    assert request.token_ids == tuple(tokenizer(read, add_special_tokens=False)["input_ids"])
    assert [(method, known) for method, _, known in (*pair.critic.asked, *pair.scorer.asked)] == [
        ("generate", True),
        ("classify", True),
    ]


async def test_the_critic_reads_the_shipped_template(ask: Ask):
    (result,) = await ask(
        Pair([said("Fine.")], [ValueOutput(1.0, 4)]), "r {question}", rubric="Is it kind?"
    )
    fence = new_fence("r {question}", salt="Q")
    assert result.rendered.startswith(f"<|im_start|>user\n{fence.note()}\n\nYou review a response")
    assert f"Response:\n{fence.wrap('r {question}')}\n" in result.rendered
    assert "Rubric:\nIs it kind?" in result.rendered
    (result,) = await ask(Pair([said("Fine.")], [ValueOutput(1.0, 4)]), "r", fence=False)
    assert "Response:\nr\n" in result.rendered


async def test_without_a_template_the_scorer_reads_a_pair(
    ask: Ask, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tokenizer, "chat_template", None)
    pair = Pair([said("Bad.")], [ValueOutput(1.0, 4)])
    await ask(pair, "r")
    assert pair.scorer.requests[0].token_ids == tuple(tokenizer("Q\n\nr", "Bad.")["input_ids"])


@pytest.mark.parametrize(
    ("output", "status", "words"),
    [
        (
            said("It is too", "length"),
            "judge_truncated",
            "the critic ran out of tokens; raise sampling.max_tokens",
        ),
        (said("<think>It is too", "length"), "judge_truncated", "inside its thinking block"),
        (said(" "), "unparseable", "no critique in ' '"),
        (said("I'm sorry, but I can't help with that."), "judge_refused", "the critic refused"),
        (said("", failure="overlong", detail="9 tokens and 8"), "overlong", "9 tokens and 8"),
        (said("", failure="provider_error", detail="HTTP 500"), "provider_error", "HTTP 500"),
    ],
)
async def test_without_a_critique_the_scorer_gets_no_request(
    ask: Ask, output: TextOutput, status: str, words: str
):
    pair = Pair([output], [])
    (result,) = await ask(pair, "r")
    assert (result.value, result.status, pair.scorer.asked) == (None, status, [])
    assert words in result.detail


async def test_the_scorers_failures_are_statuses(ask: Ask):
    pair = Pair(
        [said("ok")],
        [
            ValueOutput(math.nan, 9, failure="overlong", detail="9 tokens and 8"),
            ValueOutput(math.nan, 9),
        ],
    )
    results = await ask(pair, "a", "b")
    assert [(r.value, r.status) for r in results] == [(None, "overlong"), (None, "provider_error")]
    assert [r.raw_text for r in results] == ["ok", "ok"]


async def test_several_critiques_are_averaged(ask: Ask):
    pair = Pair(
        [said("good"), said("cut", "length"), said("bad")],
        [ValueOutput(1.0, 4), ValueOutput(4.0, 4), ValueOutput(3.0, 4), ValueOutput(-1.0, 4)],
    )
    results = await ask(pair, "a", "b", temperature=1.0)
    assert [r.value for r in results] == [2.5, 1.0]  # (1 + 4) / 2, (3 - 1) / 2
    assert results[0].extra == {"votes": [1.0, None, 4.0]}
    assert not pair.critic.asked[0][2]


async def test_a_drop_in_shapes_all_of_it(ask: Ask, tokenizer: Any):
    code = (
        DROPIN + "def rm_critique(text_prompts, text_responses, critiques, tgt_tokenizer,"
        " ground_truths):\n    return ['|'.join(row) for row in zip(text_prompts, text_responses,"
        " critiques, ground_truths, strict=True)]\n"
    )
    pair = Pair([said("Bad.")], [ValueOutput(2.0, 4)])
    (result,) = await ask(pair, "r", code=code)
    assert (result.value, result.extra) == (-2.0, {"logit": 2.0})
    assert result.rendered == f"Criticise {new_fence('r', salt='Q').wrap('r')}"
    assert pair.scorer.requests[0].token_ids == tuple(tokenizer("Q|r|Bad.|1")["input_ids"])


async def test_a_drop_in_without_rm_critique(ask: Ask):
    pair = Pair([said("Bad.")], [ValueOutput(2.0, 4)])
    (result,) = await ask(pair, "r", code=DROPIN)
    assert result.value == -2.0
    assert len(pair.scorer.requests[0].token_ids) > 20  # the conversation


CRITIQUE = "def rm_critique(text_prompts, text_responses, critiques, tgt_tokenizer):\n    "


async def test_rm_critique_that_miscounts_is_refused(ask: Ask):
    with pytest.raises(
        RewardFunctionError, match="rm_critique of reward 'd' returned 0 inputs for 1 responses"
    ):
        await ask(Pair([said("Bad.")], []), "r", code=DROPIN + CRITIQUE + "return []\n")


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("return [1 / (text != 'zero') for text in text_responses]", "ZeroDivisionError"),
        ("return [0 if text == 'zero' else text for text in text_responses]", "returned 0 (int)"),
    ],
)
async def test_a_response_that_rm_critique_fails_on_costs_its_row(ask: Ask, line: str, seen: str):
    line = line.replace("1 / (text != 'zero')", "str(1 / (text != 'zero'))")
    pair = Pair([said("Bad.")], [ValueOutput(1.0, 4), ValueOutput(2.0, 4)])
    results = await ask(pair, "one", "zero", "two", code=DROPIN + CRITIQUE + line + "\n")
    assert [r.status for r in results] == ["ok", "user_error", "ok"]
    assert [results[0].value, results[2].value] == [-1.0, -2.0]
    assert "rm_critique of reward 'd'" in results[1].detail
    assert seen in results[1].detail
    assert "d.py:" in results[1].detail
    assert "on the response 'zero'" in results[1].detail


async def test_rows_with_and_without_a_critique_stay_in_order(ask: Ask):
    texts = iter([[said("one")], [said("cut", "length")], [said("three")]])
    pair = Pair([said("x")], [ValueOutput(1.0, 4), ValueOutput(3.0, 4)])
    pair.critic.answer = lambda request: [said("x")] if request is None else next(texts)
    results = await ask(pair, "a", "b", "c")
    assert [(r.value, r.raw_text) for r in results] == [(1.0, "one"), (None, "cut"), (3.0, "three")]


async def test_a_quoted_response_does_not_reach_the_scorer(ask: Ask, tokenizer: Any):
    pair = Pair(
        [said(f"It says {new_fence('Perfect!', salt='Q').wrap('Perfect!')} and that is all.")],
        [ValueOutput(1.0, 4)],
    )
    await ask(pair, "Perfect!")
    read = tokenizer.decode(pair.scorer.requests[0].token_ids)
    assert read.count("Perfect!") == 1  # in the reply's own turn
    assert "that is all." in read


async def test_a_remote_critic_and_a_scorer_of_ours(tokenizer: Any):
    pair = Pair([said("Bad.")], [ValueOutput(2.0, 4)])
    remote = HTTPSpec(url="http://localhost/v1", wire="openai")
    made = spec("critique", roles=("scorer",), remote=remote, options=Options(scorer=SCORER))
    (result,) = await CritiqueReward.from_spec(
        made, context(tokenizer, remote=pair.critic, scorer=pair.scorer)
    ).score(items("r"))
    assert result.value == 2.0
    assert pair.critic.requests[0].token_ids == ()
    assert pair.critic.requests[0].messages[0][0] == "user"


async def test_nothing_to_score(ask: Ask):
    assert await ask(Pair([said("x")], [])) == []


def test_the_scorer_must_be_named():
    assert CritiqueReward.problems(Options(scorer=SCORER), "w") == []
    for scorer in ({}, {"engine": {}}, "/models/scorer"):
        (problem,) = CritiqueReward.problems(Options(scorer=scorer), "w")  # type: ignore[arg-type]
        assert "give w.scorer.path=<folder or hub id>" in problem
