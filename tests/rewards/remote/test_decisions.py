"""The wires decisions and systemone against a server whose answers are written here."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.remote import WIRES
from rmrl.rewards.remote.spec import DecisionRequest, HTTPSpec
from tests.patience import PATIENCE_S
from tests.rewards.remote.server import Reply, Seen, Server, script, serving

YES = ("No", "Yes")
QUESTIONS = DecisionRequest("4", (("Right?", YES), ("Tone?", ("rude", "kind"))))


async def submit(server: Server, wire: str, request: DecisionRequest) -> list[TextOutput]:
    spec = HTTPSpec(url=f"{server.url}/v1", wire=wire, model="m", timeout_s=PATIENCE_S, max_tries=1)
    client = WIRES[wire](spec)
    try:
        (outputs,) = await client.submit("decide", [request])
    finally:
        await client.aclose()
    return outputs


def chances(output: TextOutput) -> list[float]:
    return list(map(math.exp, output.choice_logprobs))


async def test_openais_form() -> None:
    answers = [
        {"type": "predicate", "name": None, "probability": 0.75},
        {
            "type": "choice",
            "choice": "kind",
            "confidence": 0.6,
            "probabilities": [
                {"value": "rude", "probability": 0.0},
                {"value": "kind", "probability": 1.0},
            ],
        },
    ]
    usage = {"input_tokens": 20, "output_tokens": 2}
    with serving(script(Reply({"model": "m", "answers": answers, "usage": usage}))) as server:
        right, tone = await submit(server, "decisions", QUESTIONS)
    assert chances(right) == pytest.approx([0.25, 0.75])
    assert tone.choice_logprobs == (-math.inf, 0.0)
    assert (right.tokens_in, right.tokens_out, tone.tokens_in) == (20, 2, 0)
    (post,) = server.seen
    assert post.path == "/v1/decisions"
    assert post.body["input"] == "4"
    assert post.body["questions"] == [
        {"type": "predicate", "instructions": "Right?"},
        {
            "type": "choice",
            "instructions": "Tone?",
            "choices": [{"value": "rude"}, {"value": "kind"}],
        },
    ]


async def test_vllms_form() -> None:
    answers = {
        "0": {"type": "noul", "probabilities": {"yes": 0.75, "no": 0.25}},
        "1": {"type": "choice", "probabilities": {"rude": 0.5, "kind": 0.5}},
    }
    diagnostics = {"0": {"label_mass": 0.8}, "1": {"label_mass": 0.5}}
    reply = Reply({"answers": answers, "diagnostics": diagnostics, "usage": {}})
    with serving(script(reply)) as server:
        right, tone = await submit(server, "systemone", QUESTIONS)
    assert chances(right) == pytest.approx([0.2, 0.6])
    assert chances(tone) == pytest.approx([0.25, 0.25])
    (post,) = server.seen
    assert post.path == "/v1/systemone"
    assert post.body["questions"] == {
        "0": {"type": "noul", "instructions": "Right?"},
        "1": {"type": "choice", "instructions": "Tone?", "criteria": {"rude": None, "kind": None}},
    }


async def test_a_refusal_is_a_status_of_its_question() -> None:
    answers = [{"type": "refusal"}, {"type": "predicate", "probability": 1.0}]
    request = DecisionRequest("4", (("Right?", YES), ("Kind?", YES)))
    with serving(script(Reply({"answers": answers}))) as server:
        right, kind = await submit(server, "decisions", request)
    assert right.failure == "judge_refused"
    assert (kind.failure, kind.choice_logprobs) == ("", (-math.inf, 0.0))


async def test_more_questions_than_a_post_holds_go_in_several() -> None:
    def answer(post: Seen) -> Reply:
        names = post.body["questions"]
        each = {"type": "noul", "probabilities": {"yes": 1 / post.number, "no": 0.0}}
        return Reply({"answers": dict.fromkeys(names, each)})

    request = DecisionRequest("4", tuple((f"{number}?", YES) for number in range(65)))
    with serving(answer) as server:
        outputs = await submit(server, "systemone", request)
    assert [len(post.body["questions"]) for post in server.seen] == [64, 1]
    assert [chances(output)[1] for output in outputs] == pytest.approx([1.0] * 64 + [0.5])


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"answers": {}},
        {"answers": {"0": {"type": "noul", "probabilities": {"yes": 1.5, "no": 0}}, "1": {}}},
        {"answers": {"0": {"type": "noul", "probabilities": {"yes": "much", "no": 0}}}},
        {"answers": {"0": {"type": "noul", "probabilities": {"no": 0}}}},
    ],
)
async def test_an_answer_of_another_form_is_no_verdict(body: Any) -> None:
    with serving(script(Reply(body))) as server:
        outputs = await submit(server, "systemone", QUESTIONS)
    assert [output.failure for output in outputs] == ["provider_error"] * 2
    assert "did not answer all questions" in outputs[0].detail


async def test_an_error_of_the_server_is_the_status_of_all_questions() -> None:
    with serving(script(Reply({"error": {"message": "no such model"}}, status=404))) as server:
        outputs = await submit(server, "decisions", QUESTIONS)
    assert [output.failure for output in outputs] == ["provider_error"] * 2
    assert "no such model" in outputs[0].detail


async def test_the_wires_write_no_text() -> None:
    wire = WIRES["systemone"](HTTPSpec(url="http://127.0.0.1:9/v1", wire="systemone", model="m"))
    with pytest.raises(RewardError, match="the wire systemone answers questions"):
        await wire.submit("generate", [])
