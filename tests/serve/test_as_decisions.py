"""A rubric scores through the decision wires of another rmrl, over a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmrl.errors import ConfigError
from rmrl.offline.rewards import AsyncRewards
from tests.serve.conftest import Served
from tests.serve.live import live
from tests.serve.test_decisions import judge

PROMPTS = ["How much is 2 + 2?", "Who are you?"]
RESPONSES = ["4", "a text"]
CRITERIA = [
    {"text": "It is right.", "weight": 3},
    {"text": "Which tone?", "choices": ["rude", "plain", "kind"], "name": "tone"},
]


async def scored(wire: str, address: str, **entries: Any) -> Any:
    """A table of scores by the rubric `far`, or by another kind."""
    server = {"wire": wire, "url": f"{address}/v1", "model": "judge"}
    spec = {"kind": "rubric", "server": server, **entries}
    if spec["kind"] == "rubric":
        spec["criteria"] = CRITERIA
    reward = {"models": ["far"], "specs": {"far": spec}, "max_missing": 1.0}
    config = {"reward": reward, "trainer": {"device": "cpu"}}
    async with AsyncRewards(config) as rewards:
        return await rewards.score(PROMPTS, RESPONSES)


@pytest.mark.parametrize(("wire", "mass"), [("decisions", 1.0), ("systemone", 0.8)])
async def test_a_rubric_behind_a_decision_wire(served: Served, wire: str, mass: float) -> None:
    """The judge says yes with 0.6 and no with 0.2, A with 0.5, B with 0.25 and C with 0.05."""
    with live(served, *judge(served)) as address:
        table = await scored(wire, address)
    # Yes 0.75. The tones are worth 0, 1/2 and 1: 0.3125 / 2 + 0.0625. (3 * 0.75 + 0.21875) / 4
    assert table["reward"] == pytest.approx([0.6171875] * 2)
    assert table["status_far"] == ["ok", "ok"]
    columns = json.loads(table["extra_far"][0])
    assert columns["tone"] == pytest.approx(0.21875)
    assert columns["label_mass"] == pytest.approx(mass)
    shares = columns["criteria"][0]["shares"]
    assert shares == pytest.approx({"No": 0.25, "Yes": 0.75})


@pytest.mark.parametrize("wire", ["decisions", "systemone"])
async def test_score_tokens_behind_a_decision_wire(served: Served, wire: str) -> None:
    """The judge says yes with 0.6 and no with 0.2: 2 * 0.75 - 0.25."""
    with live(served, *judge(served)) as address:
        values = {"No": -1.0, "Yes": 2.0}
        table = await scored(wire, address, kind="generative", score_tokens=values)
    assert table["reward"] == pytest.approx([1.25] * 2)
    assert json.loads(table["extra_far"][0])["shares"] == pytest.approx({"No": 0.25, "Yes": 0.75})


async def test_answers_that_the_judge_would_not_give_are_no_verdict(served: Served) -> None:
    with live(served, *judge(served)) as address:
        table = await scored("systemone", address, min_label_mass=0.81)
    assert table["status_far"] == ["unparseable"] * 2
    assert "criterion 1 ('It is right.')" in table["detail_far"][0]


async def test_what_a_decision_server_cannot_do_is_refused() -> None:
    for entries, words in (
        ({"combine": "holistic"}, "combine=holistic reads a written verdict"),
        ({"kind": "generative", "rubric": "x"}, "answers questions and writes no text"),
        ({"server": {"wire": "systemone", "url": "http://127.0.0.1:9/v1"}}, "needs the name of"),
        ({"server": {"url": "http://127.0.0.1:9/v1", "model": "m"}}, "wire: decisions or"),
    ):
        with pytest.raises(ConfigError, match=words):
            await scored("systemone", "http://127.0.0.1:9", **entries)
