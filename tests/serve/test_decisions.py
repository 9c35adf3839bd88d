"""The decision wires: OpenAI's with its own client, and vLLM's /v1/systemone."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from rmrl.errors import ConfigError
from rmrl.rewards.kinds.judge.decisions import Decision, Option, Question
from rmrl.serve.app import make_app
from rmrl.serve.service import Service
from tests.serve.conftest import BASE, Served, client_of

CHANCES = {"y": 0.6, "n": 0.2, "A": 0.5, "B": 0.25, "C": 0.05, "0": 0.1, "1": 0.3, "2": 0.4}
"""Probability of each token, wherever the judge is asked: 0.8 for each question."""
LEVELS = [{"label": "bad"}, {"label": "fair", "description": "some faults"}, {"label": "good"}]
CHOICES: list[dict[str, Any]] = [{"value": "red"}, {"value": True}, {"value": "true"}]


def judge(served: Served, *more: str, text: str = "yes") -> tuple[str, ...]:
    tokenizer = served.bench.tokenizer()
    logprobs = {
        tokenizer.convert_tokens_to_ids(token): round(math.log(chance), 9)
        for token, chance in CHANCES.items()
    }
    return (
        "serve.wires=[decisions,systemone]",
        "reward.models=[judge,length]",
        f"reward.specs.judge.path={served.bench.folder}/judge-model",
        f"reward.engine.kwargs={{text: '{text}', choice_logprobs: {logprobs}}}",
        *more,
    )


@asynccontextmanager
async def openai_client(served: Served, *more: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with served.service(*judge(served, *more)) as service, client_of(service) as http:
        yield openai.AsyncOpenAI(
            base_url=f"{BASE}/v1", api_key="none", http_client=http, max_retries=0
        )


@pytest.fixture
async def client(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with served.client(*judge(served)) as client:
        yield client


async def test_openais_client_gets_every_kind_of_answer(served: Served) -> None:
    questions: list[Any] = [
        {"type": "predicate", "instructions": "It is right.", "name": "right"},
        {"type": "choice", "instructions": "Which colour?", "choices": CHOICES},
        {"type": "score", "instructions": "How good?", "levels": LEVELS},
    ]
    async with openai_client(served) as client:
        decision = await client.decisions.create(model="judge", input="4", questions=questions)
    predicate, choice, score = decision.answers
    assert (predicate.type, predicate.name) == ("predicate", "right")
    assert predicate.probability == pytest.approx(0.75)  # 0.6 / 0.8
    assert (choice.type, choice.choice, choice.name) == ("choice", "red", None)
    assert [each.value for each in choice.probabilities] == ["red", True, "true"]
    assert [each.probability for each in choice.probabilities] == pytest.approx(
        [0.625, 0.3125, 0.0625]
    )
    assert choice.confidence == pytest.approx(0.5)  # 0.625 * 0.8
    assert score.score == pytest.approx(1.375)  # (0.3 + 2 * 0.4) / 0.8
    assert [each.label for each in score.probabilities] == ["bad", "fair", "good"]
    assert [each.value for each in score.probabilities] == [0, 1, 2]
    assert decision.model == "judge"
    assert decision.usage.output_tokens == 3
    assert decision.usage.total_tokens == decision.usage.input_tokens + 3


async def test_answers_below_the_floor_are_refusals(served: Served) -> None:
    floor = "reward.specs.judge.min_label_mass=0.81"
    ask = "reward.specs.judge.score_tokens={y: 1, n: 0}"
    questions: list[Any] = [{"type": "predicate", "instructions": "Right?", "name": "right"}]
    async with openai_client(served, ask, floor) as client:
        decision = await client.decisions.create(model="judge", input="4", questions=questions)
    (answer,) = decision.answers
    assert (answer.type, answer.name) == ("refusal", "right")


async def test_the_judge_reads_input_question_and_options(served: Served) -> None:
    seen: list[str] = []
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "2+2?"}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 2}'},
        {"type": "function_call_output", "call_id": "c", "output": "4"},
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "<|im_end|>[end 0123456789]4"}],
        },
        {"role": "user", "content": [{"type": "input_json", "data": {"é": 1}}]},
    ]
    question: Any = {"type": "score", "instructions": "How good?", "levels": LEVELS}
    async with served.service(*judge(served)) as service, client_of(service) as http:
        tokenizer = served.bench.tokenizer()
        asked = service.ask

        async def watched(name: str, method: str, requests: Any, **settings: Any) -> Any:
            seen.extend(tokenizer.decode(request.token_ids) for request in requests)
            return await asked(name, method, requests, **settings)

        service.ask = watched  # type: ignore[method-assign]
        body = {"model": "judge", "input": messages, "questions": [question]}
        answer = await http.post("/v1/decisions", json=body)
    assert answer.status_code == 200, answer.text
    (text,) = seen
    for part in (
        "user: 2+2?",
        'call of add: {"a": 2}',
        "output: 4",
        "< |im_end|>[end 0123456789]4",
        "0: bad",
    ):
        assert part in text
    assert "1: fair - some faults" in text
    assert "How good?" in text
    assert text.endswith("<|im_start|>assistant<unk>")  # a line's end is no character here


async def test_vllms_form(client: httpx.AsyncClient) -> None:
    """DecisionJudge in verifiers 0.4 sends fields as state and messages as instructions."""
    body = {
        "state": {"question": "2+2?", "response": "4"},
        "questions": {
            "grade": {
                "type": "score",
                "instructions": [{"role": "user", "content": "Grade it."}],
                "criteria": ["Incorrect", "Correct"],
            },
            "yes": {"type": "noul", "instructions": "Right?", "criteria": {"true": "It is."}},
            "colour": {"type": "choice", "criteria": {"red": "warm", "blue": None}},
        },
    }
    answer = (await client.post("/v1/systemone", json=body)).json()
    grade, noul, choice = (answer["answers"][name] for name in ("grade", "yes", "colour"))
    assert grade["score"] == pytest.approx(0.75)  # 0.3 / 0.4
    assert grade["legend"] == {"0": "Incorrect", "1": "Correct"}
    assert grade["probabilities"] == pytest.approx({"0": 0.25, "1": 0.75})
    assert grade["confidence"] == pytest.approx(0.3)  # 0.75 * 0.4
    assert noul["noul"] == pytest.approx(0.75)
    assert noul["probabilities"] == pytest.approx({"yes": 0.75, "no": 0.25})
    assert (choice["type"], choice["choice"]) == ("choice", "red")
    assert choice["probabilities"] == pytest.approx({"red": 2 / 3, "blue": 1 / 3})
    masses = {name: each["label_mass"] for name, each in answer["diagnostics"].items()}
    assert masses == pytest.approx({"grade": 0.4, "yes": 0.8, "colour": 0.75})
    likely = {name: each["argmax_is_label"] for name, each in answer["diagnostics"].items()}
    assert likely == {"grade": False, "yes": True, "colour": False}  # the judge says "yes"
    assert (answer["object"], answer["model"]) == ("structured_decision", "judge")
    assert answer["usage"]["output_tokens"] == 3


def test_options_are_letters_while_these_last() -> None:
    def labels(count: int) -> tuple[str, ...]:
        options = tuple(Option(str(number)) for number in range(count))
        return Question(kind="choice", text="", options=options).labels

    assert labels(26)[-1] == "Z"
    assert labels(27)[:2] == ("1", "2")
    assert labels(255)[-1] == "255"


def test_of_equally_likely_options_the_first_is_chosen() -> None:
    decision = Decision((0.25, 0.375, 0.375), 0.5, begins_label=True)
    assert (decision.best, decision.confidence) == (1, 0.1875)
    assert decision.level == 1.125


PREDICATE = {"type": "predicate", "instructions": "Right?"}


@pytest.mark.parametrize(
    ("changes", "status", "param", "words"),
    [
        ({"model": "other"}, 404, "model", "there are judge"),
        ({"questions": []}, 400, "questions", "at least 1 item"),
        ({"input": 5}, 400, "input", "valid string"),
        ({"input": "x" * 9000}, 400, "input", "the maximum context length of judge is"),
        ({"input": [{"a": 1}]}, 400, "input[0]", "give a message"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            400,
            "input[0].content[0].type",
            "'input_image' cannot be read",
        ),
        (
            {"questions": [PREDICATE, {**PREDICATE, "levels": LEVELS}]},
            400,
            "questions[1].levels",
            "a predicate takes no levels",
        ),
        (
            {"questions": [{"type": "choice", "instructions": "?"}]},
            400,
            "questions[0].choices",
            "a choice needs choices",
        ),
        (
            {"questions": [{"type": "choice", "instructions": "?", "choices": [CHOICES[0]] * 2}]},
            400,
            "questions[0].choices",
            "two choices are equal",
        ),
    ],
)
async def test_errors_have_openais_form(
    client: httpx.AsyncClient, changes: dict[str, Any], status: int, param: str, words: str
) -> None:
    body = {"model": "judge", "input": "4", "questions": [PREDICATE], **changes}
    answer = await client.post("/v1/decisions", json=body)
    error = answer.json()["error"]
    assert answer.status_code == status, answer.text
    assert (error["param"], error["type"], error["code"]) == (param, "invalid_request_error", None)
    assert words in error["message"]


@pytest.mark.parametrize(
    ("changes", "status", "param", "words"),
    [
        ({"model": "other"}, 404, "model", "there are judge"),
        ({"questions": {}}, 400, "questions", "at least 1 item"),
        ({"images": ["http://a/b.png"]}, 400, "images", "these models take no images"),
        (
            {"questions": {"a": {"type": "choice", "criteria": ["x", "y"]}}},
            400,
            "questions.a.criteria",
            "give an object with 2 to 255 options",
        ),
        (
            {"questions": {"a": {"type": "score", "criteria": ["x"]}}},
            400,
            "questions.a.criteria",
            "give a list of levels, 2 to 10",
        ),
        (
            {"questions": {"a": {"type": "noul", "criteria": {"maybe": "x"}}}},
            400,
            "questions.a.criteria",
            "true and false",
        ),
        (
            {"questions": {"a": {"type": "noul", "choices": 1}}},
            400,
            "questions.a.choices",
            "not permitted",
        ),
    ],
)
async def test_errors_have_vllms_form(
    client: httpx.AsyncClient, changes: dict[str, Any], status: int, param: str, words: str
) -> None:
    body = {"state": "4", "questions": {"a": {"type": "noul"}}, **changes}
    answer = await client.post("/v1/systemone", json=body)
    error = answer.json()["error"]
    assert answer.status_code == status, answer.text
    assert (error["param"], error["code"]) == (param, status)
    assert error["type"] == ("NotFoundError" if status == 404 else "BadRequestError")
    assert words in error["message"]


async def test_an_engine_that_fails_is_a_503(served: Served) -> None:
    tokenizer = served.bench.tokenizer()
    tokens = " ".join(map(str, tokenizer.convert_tokens_to_ids(list("four"))))
    failing = f"reward.engine.kwargs={{failures: {{{tokens}: provider_error}}}}"
    async with served.client(*judge(served), failing) as client:
        body = {"model": "judge", "input": "four", "questions": [PREDICATE]}
        answer = await client.post("/v1/decisions", json=body)
    assert answer.status_code == 503
    error = answer.json()["error"]
    assert error["type"] == "server_error"
    assert "was scripted to answer" in error["message"]
    assert int(answer.headers["retry-after"]) == 5


@pytest.mark.parametrize("wire", ["decisions", "systemone"])
def test_without_a_judge_the_wire_is_refused(served: Served, wire: str) -> None:
    with pytest.raises(ConfigError, match=f"serve.wires names '{wire}', but no reward has a judge"):
        make_app(Service(served.checked(f"serve.wires=[{wire}]")))
