"""The wire of NeMo Gym against a server that answers as its resource servers do: the body of the
post with the fields of `BaseVerifyResponse` added."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.kinds.remote.reward import Options, check_server
from rmrl.rewards.kinds.shared.row_fields import row_fields
from rmrl.rewards.remote.nemo_gym import NemoGymWire
from rmrl.rewards.remote.spec import HTTPSpec, RowRequest
from rmrl.types import ScoreItem
from tests.patience import PATIENCE_S
from tests.rewards.remote.server import Reply, Seen, serving

QUESTION = RowRequest(
    "Which one?",
    "Answer: B",
    "B",
    messages=(("system", "Be brief."), ("user", "Which one?")),
    fields=json.dumps({"expected_answer": "B", "options": [{"A": "no"}, {"B": "yes"}]}),
)


def verified(**added: Any) -> Any:
    """A resource server: its answer repeats the request."""

    def answer(seen: Seen) -> Reply:
        correct = seen.body["expected_answer"] in written(seen.body)
        return Reply({**seen.body, "reward": float(correct), **added})

    return answer


def written(body: dict[str, Any]) -> str:
    """The assistant's texts, as the verifiers there join them."""
    texts = []
    for entry in body["response"]["output"]:
        if entry["type"] == "message" and entry["role"] == "assistant":
            texts += [part["text"] for part in entry["content"]]
    return "\n".join(texts)


async def ask(answer: Any, *requests: RowRequest, **spec: Any) -> tuple[list[ValueOutput], Any]:
    with serving(answer) as server:
        settings: dict[str, Any] = {"timeout_s": PATIENCE_S, "max_tries": 1, **spec}
        wire = NemoGymWire(HTTPSpec(url=f"{server.url}/verify", wire="nemo_gym", **settings))
        try:
            return await wire.submit("reward", requests), server
        finally:
            await wire.aclose()


async def test_the_post_has_prompt_response_and_the_rows_fields() -> None:
    [output], server = await ask(verified(), QUESTION, model="tiny")
    assert (output.value, output.failure, output.extra) == (1.0, "", ())
    [seen] = server.seen
    assert seen.path == "/verify"
    assert seen.body["responses_create_params"] == {
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Which one?"},
        ]
    }
    assert seen.body["expected_answer"] == "B"
    assert seen.body["response"]["model"] == "tiny"
    assert seen.body["response"]["status"] == "completed"
    assert written(seen.body) == "Answer: B"


async def test_the_response_is_one_of_the_responses_api() -> None:
    responses = pytest.importorskip("openai.types.responses")
    _, server = await ask(verified(), QUESTION)
    body = server.seen[0].body["response"]
    parsed = responses.Response.model_validate(body, strict=False)
    assert parsed.output_text == "Answer: B"
    assert responses.ResponseOutputMessage.model_validate(body["output"][0]).role == "assistant"


async def test_a_response_without_an_end_is_incomplete() -> None:
    cut = RowRequest("Q", "and then", fields='{"expected_answer": "x"}', finish_reason="length")
    _, server = await ask(verified(), cut)
    response = server.seen[0].body["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_components_and_new_fields_are_columns_and_echoes_are_not() -> None:
    added = {
        "reward_components": {"format": 1.0, "answer": 0.5},
        "extracted_answer": "B",
        "mask_sample": False,
        "failure_kind": None,
        "failure_reason": None,
    }
    [output], _ = await ask(verified(**added), QUESTION)
    assert dict(output.extra) == {"extracted_answer": "B", "format": 1.0, "answer": 0.5}


async def test_a_masked_sample_has_no_reward() -> None:
    masked = {"mask_sample": True, "failure_kind": "judge", "failure_reason": "judge is down"}
    [output], _ = await ask(verified(**masked), QUESTION)
    assert output.failure == "provider_error"
    assert "(mask_sample, judge): judge is down" in output.detail


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        (Reply({"detail": "no such field"}, 422), "422 Unprocessable Entity: no such field"),
        (Reply({"response": {}}), "without a 'reward'"),
        (Reply({"reward": None}), "gave None as a reward"),
        (Reply([1.0]), "without a 'reward'"),
    ],
)
async def test_an_answer_without_a_reward_is_a_failure(reply: Reply, part: str) -> None:
    [output], _ = await ask(lambda _: reply, QUESTION)
    assert output.failure == "provider_error"
    assert part in output.detail


async def test_a_failed_post_is_tried_again() -> None:
    def answer(seen: Seen) -> Reply:
        return Reply({}, 503) if seen.number == 1 else verified()(seen)

    [output], server = await ask(answer, QUESTION, max_tries=2)
    assert output.value == 1.0
    assert len(server.seen) == 2


async def test_the_rows_own_parameters_keep_their_input() -> None:
    own = {"responses_create_params": {"input": "Which?", "temperature": 0.5}}
    request = RowRequest("Q", "B", fields=json.dumps({**own, "expected_answer": "B"}))
    _, server = await ask(verified(), request)
    assert server.seen[0].body["responses_create_params"] == own["responses_create_params"]


# --- fields of a row


def row(extra_info: Any) -> ScoreItem:
    return ScoreItem(
        prompt_id="0",
        messages=[{"role": "user", "content": "Q"}],
        response="r",
        rm_prompt="Q",
        ground_truth="7",
        data_source="set",
        extra_info=extra_info,
    )


def fields(extra_info: Any, chosen: Any = ()) -> Any:
    return json.loads(row_fields(row(extra_info), dict(chosen)))


def test_without_a_choice_the_entries_of_extra_info_are_posted() -> None:
    assert fields({"expected_answer": "7", "split": None}) == {"expected_answer": "7"}


@pytest.mark.parametrize(
    "own", [{"verifier_metadata": {"a": [1]}}, '{"verifier_metadata": {"a": [1]}}']
)
def test_the_key_nemo_gym_holds_the_fields_alone(own: Any) -> None:
    assert fields({"nemo_gym": own, "index": 3}) == {"verifier_metadata": {"a": [1]}}


def test_chosen_fields_come_from_the_row() -> None:
    chosen = {"expected_answer": "ground_truth", "source": "data_source", "n": "extra_info.index"}
    assert fields({"index": 3}, chosen) == {"expected_answer": "7", "source": "set", "n": 3}


def test_problems_of_the_entries() -> None:
    options = Options(wire="nemo_gym", url="http://127.0.0.1:9", fields={"x": "answer"})
    assert check_server(options, "w") == [
        "w.url=http://127.0.0.1:9: a resource server scores at its path /verify; give"
        " http://127.0.0.1:9/verify",
        "w.fields.x='answer': give ground_truth, data_source or extra_info.<key>",
    ]
    slime = Options(wire="slime", url="http://127.0.0.1:9/s", fields={"x": "ground_truth"})
    [problem] = check_server(slime, "w")
    assert problem.startswith("w.fields: the wire slime posts")
