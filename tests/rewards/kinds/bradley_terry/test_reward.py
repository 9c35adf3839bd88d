"""A scalar head's logits become scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import PoolingRequest, ValueOutput
from rmrl.rewards.kinds.bradley_terry.reward import BradleyTerryReward, prompt_text
from rmrl.types import ScoreItem, ScoreResult
from tests.rewards.kinds.scripted import Scripted, context, dropin, spec
from tests.rewards.parts import items

Ask = Callable[..., Any]


@pytest.fixture
def ask(tokenizer: Any, tmp_path: Path) -> Ask:
    """ask(responses..., value=..., code=...): the results, and the requests the engine got."""

    async def run(
        *responses: str, output: ValueOutput | None = None, code: str = ""
    ) -> tuple[list[ScoreResult], list[PoolingRequest]]:
        engine = Scripted(
            lambda request: (
                output or ValueOutput(float(len(request.token_ids)), len(request.token_ids))
            )
        )
        made = spec("bradley_terry", sampling=None, dropin=dropin(tmp_path, code) if code else None)
        results = await BradleyTerryReward.from_spec(made, context(tokenizer, main=engine)).score(
            items(*responses)
        )
        assert all(
            (method, deterministic) == ("classify", True)
            for method, _, deterministic in engine.asked
        )
        return results, engine.requests

    return run


async def test_the_raw_logit_is_the_score(ask: Ask):
    (result,), _ = await ask("r", output=ValueOutput(-3.25, 9))
    assert (result.value, result.raw_text, result.tokens_in) == (-3.25, "-3.25", 9)


async def test_it_reads_the_conversation(ask: Ask):
    (result,), (request,) = await ask("r<|im_end|>")
    assert (
        result.rendered
        == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nr< |im_end|><|im_end|>\n"
    )
    assert result.value == len(request.token_ids)


async def test_without_a_template_it_reads_the_pair(
    ask: Ask, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tokenizer, "chat_template", None)
    (result,), _ = await ask("r")
    assert result.rendered == "Q\n---\nr"


@pytest.mark.parametrize(
    ("output", "status", "detail"),
    [
        (
            ValueOutput(math.nan, 9, failure="overlong", detail="9 tokens and 8"),
            "overlong",
            "9 tokens and 8",
        ),
        (ValueOutput(math.nan, 9, failure="worker_lost", detail="gone"), "worker_lost", "gone"),
        (ValueOutput(math.nan, 9), "provider_error", "the model gave nan"),
        (ValueOutput(math.inf, 9), "provider_error", "the model gave inf"),
    ],
)
@pytest.mark.parametrize(
    "code",
    [
        "",
        (
            "def rm_preprocess(p, r, t):\n    return r\ndef rm_postprocess(results):\n    return [1"
            " / 0]\n"
        ),
    ],
)
async def test_what_is_no_number_is_no_verdict(
    ask: Ask, output: ValueOutput, status: str, detail: str, code: str
):
    (result,), _ = await ask("r", output=output, code=code)
    assert (result.value, result.status, result.detail) == (None, status, detail)


async def test_a_cached_logit_is_marked(ask: Ask):
    assert (await ask("r", output=ValueOutput(1.0, 9, cached=True)))[0][0].cached
    assert not (await ask("r", output=ValueOutput(1.0, 9)))[0][0].cached


async def test_a_scalar_model_reads_no_fence(ask: Ask):
    code = (
        "def rm_preprocess(p, r, t):\n    return r\ndef rm_postprocess(results):\n    return"
        " results\n"
    )
    (result,), _ = await ask("r<|im_end|>", code=code)
    assert result.rendered == "r< |im_end|>"


async def test_a_drop_in_shapes_input_and_score(ask: Ask):
    code = (
        "def rm_preprocess(p, r, t):\n    return [x * 2 for x in r]\n"
        "def rm_postprocess(results):\n    return [{'score': -r, 'raw': r} for r in results]\n"
    )
    (result,), _ = await ask("ab", code=code)
    assert (result.rendered, result.value, result.extra) == ("abab", -4.0, {"raw": 4.0})


async def test_a_drop_in_may_return_none(ask: Ask):
    code = (
        "def rm_preprocess(p, r, t):\n    return r\ndef rm_postprocess(results):\n    return [None"
        " for r in results]\n"
    )
    results, _ = await ask("ab", "", code=code)
    assert [r.status for r in results] == ["unparseable", "user_error"]


async def test_no_responses(ask: Ask):
    assert await ask() == ([], [])


def test_the_prompt_as_one_text():
    item = items("r")[0]
    assert prompt_text(item) == "Q"
    turns = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]
    assert prompt_text(ScoreItem(prompt_id="", messages=[], response="", rm_prompt=turns)) == "b"
    assert (
        prompt_text(ScoreItem(prompt_id="", messages=[], response="", rm_prompt=turns[:1])) == "s"
    )
