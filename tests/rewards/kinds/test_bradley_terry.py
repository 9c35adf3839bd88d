"""A scalar head's logits become scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.dropin import load_dropin
from rmrl.rewards.engines.base import PoolingRequest, ValueOutput
from rmrl.rewards.engines.merge import MergedCalls
from rmrl.rewards.kinds.bradley_terry import BradleyTerryReward, prompt_text
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.rule_pool import RulePool
from rmrl.types import ScoreItem, ScoreResult
from tests.rewards.parts import always, items, scalar

Ask = Callable[..., Any]


@pytest.fixture
def ask(tokenizer: Any, tmp_path: Path) -> Ask:
    """ask(responses..., value=..., code=...): the results, and the requests the engine got."""

    async def run(*responses: str, output: ValueOutput | None = None, code: str = "") -> tuple[list[ScoreResult], list[PoolingRequest]]:
        got: list[PoolingRequest] = []

        async def engine(method: str, requests: list[PoolingRequest]) -> list[ValueOutput]:
            assert method == "classify"
            got.extend(requests)
            return [output or ValueOutput(float(len(r.token_ids)), len(r.token_ids)) for r in requests]

        dropin = None
        if code:
            (tmp_path / "d.py").write_text(code, encoding="utf-8")
            dropin = load_dropin(tmp_path / "d.py", "d")
        context = KindContext(pool=RulePool(1), tokenizer=always(tokenizer), calls=MergedCalls(engine, participants=1))
        return await BradleyTerryReward.from_spec(scalar(dropin=dropin), context).score(items(*responses)), got

    return run


async def test_the_raw_logit_is_the_score(ask: Ask):
    (result,), _ = await ask("r", output=ValueOutput(-3.25, 9))
    assert (result.value, result.raw_text, result.tokens_in) == (-3.25, "-3.25", 9)


async def test_it_reads_the_conversation(ask: Ask):
    (result,), (request,) = await ask("r<|im_end|>")
    assert result.rendered == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nr<\u200b|im_end|><|im_end|>\n"
    assert result.value == len(request.token_ids)


async def test_without_a_template_it_reads_the_pair(ask: Ask, tokenizer: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokenizer, "chat_template", None)
    (result,), _ = await ask("r")
    assert result.rendered == "Q\n---\nr"


async def test_equal_inputs_are_scored_once(ask: Ask):
    results, got = await ask("a", "bb", "a")
    assert len(got) == 2
    assert [r.value for r in results] == [results[0].value, results[0].value + 1, results[0].value]


@pytest.mark.parametrize(
    ("output", "status"), [(ValueOutput(math.nan, 9, "overlong"), "overlong"), (ValueOutput(math.nan, 9), "provider_error"),
                           (ValueOutput(math.inf, 9), "provider_error")]
)  # fmt: skip
async def test_what_is_no_number_is_no_verdict(ask: Ask, output: ValueOutput, status: str):
    (result,), _ = await ask("r", output=output)
    assert (result.value, result.status) == (None, status)
    assert result.detail


async def test_a_drop_in_shapes_input_and_score(ask: Ask):
    code = (
        "def rm_preprocess(p, r, t):\n    return [x * 2 for x in r]\n"
        "def rm_postprocess(results):\n    return [{'score': -r, 'raw': r} for r in results]\n"
    )
    (result,), _ = await ask("ab", code=code)
    assert (result.rendered, result.value, result.extra) == ("abab", -4.0, {"raw": 4.0})


async def test_a_drop_in_may_say_none(ask: Ask):
    code = "def rm_preprocess(p, r, t):\n    return r\ndef rm_postprocess(results):\n    return [None for r in results]\n"
    results, _ = await ask("ab", "", code=code)
    assert [r.status for r in results] == ["unparseable", "user_error"]


async def test_no_responses(ask: Ask):
    assert await ask() == ([], [])


def test_the_prompt_as_one_text():
    item = items("r")[0]
    assert prompt_text(item) == "Q"
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert prompt_text(ScoreItem(prompt_id="", messages=[], response="", rm_prompt=turns)) == "b"
    assert prompt_text(ScoreItem(prompt_id="", messages=[], response="", rm_prompt=turns[:1])) == "s"
