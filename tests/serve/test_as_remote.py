"""One rmrl scores through the server of another one, over a socket: the numbers are the same."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.offline.rewards import AsyncRewards
from tests.serve.conftest import Served
from tests.serve.live import live

PROMPTS = ["How much is 2 + 2?", "Who are you?", "Say nothing."]
RESPONSES = ["four", "a text of 23 characters", "silent"]
DIRECT = [0.4, 2.3, None]


async def scored(spec: dict[str, Any]) -> Any:
    """A table of scores by the reward `far`."""
    config = {"reward": {"models": ["far"], "specs": {"far": {"kind": "remote", **spec}}}}
    async with AsyncRewards({**config, "trainer": {"device": "cpu"}}) as rewards:
        return await rewards.score(PROMPTS, RESPONSES, references=["4", "me", ""])


@pytest.mark.parametrize(
    ("wire", "path"),
    [("openrlhf", "/get_reward"), ("slime", "/slime"), ("slime", "/slime/components")],
)
async def test_a_reward_behind_a_wire_has_its_own_scores(
    served: Served, wire: str, path: str
) -> None:
    with live(served, "serve.wires=[openrlhf,slime]") as address:
        table = await scored({"wire": wire, "url": address + path})
    assert table["reward"] == DIRECT
    assert table["status_far"] == ["ok", "ok", "provider_error"]
    assert "a finite number is needed" in table["detail_far"][2]


async def test_a_judge_behind_the_chat_wire_gives_its_own_verdicts(served: Served) -> None:
    """The engine answers 7 to everything; the judge is rendered by the client."""
    judge = [
        "reward.models=[judge]",
        f"reward.specs.judge.path={served.bench.folder}/judge-model",
        "reward.engine.kwargs={text: '7'}",
    ]
    with live(served, "serve.wires=[native,chat]", *judge) as address:
        spec = {
            "kind": "generative",
            "server": {"url": f"{address}/v1", "model": "judge"},
            "rubric": "how good it is",
            "sampling": {"max_tokens": 4},
        }
        config = {"models": ["far"], "specs": {"far": spec}}
        async with AsyncRewards({"reward": config, "trainer": {"device": "cpu"}}) as rewards:
            table = await rewards.score(PROMPTS, RESPONSES)
    # 7 on the scale from 0 to 10
    assert table["reward"] == [0.7, 0.7, 0.7]
