"""The chat wire, with OpenAI's own client."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import openai
import pytest

from rmrl.errors import ConfigError
from rmrl.serve.app import make_app
from rmrl.serve.problems import RequestError
from rmrl.serve.service import Service
from rmrl.serve.wires import chat
from rmrl.serve.wires.chat import ChatBody, ChatWire
from tests.patience import PATIENCE_S
from tests.serve.conftest import BASE, Served, client_of

MESSAGES = [{"role": "user", "content": "how good is it?"}]


def judge(served: Served, engine: str = "{text: 'seven of ten'}", *more: str) -> tuple[str, ...]:
    return (
        "serve.wires=[native,chat]",
        "reward.models=[judge,length]",
        f"reward.specs.judge.path={served.bench.folder}/judge-model",
        f"reward.engine.kwargs={engine}",
        *more,
    )


@asynccontextmanager
async def openai_client(served: Served, *overrides: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with served.service(*overrides) as service, client_of(service) as http:
        yield openai.AsyncOpenAI(
            base_url=f"{BASE}/v1", api_key="none", http_client=http, max_retries=0
        )


async def test_openais_client_gets_samples_and_usage(served: Served) -> None:
    async with openai_client(served, *judge(served)) as client:
        models = await client.models.list()
        answer = await client.chat.completions.create(
            model="judge",
            messages=[
                {"role": "system", "content": "You judge."},
                {"role": "user", "content": [{"type": "text", "text": "how good?"}]},
            ],
            n=2,
            max_tokens=2,
        )
    assert [model.id for model in models.data] == ["judge"]
    assert [choice.message.content for choice in answer.choices] == ["seven of"] * 2
    assert [choice.finish_reason for choice in answer.choices] == ["length"] * 2
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage is not None
    # two samples of two words
    assert answer.usage.completion_tokens == 4
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 4


async def test_openais_client_reads_the_stream(served: Served) -> None:
    async with openai_client(served, *judge(served)) as client:
        stream = await client.chat.completions.create(
            model="judge", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == "seven of ten"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3


async def test_what_is_left_out_is_as_in_the_judges_sampling(served: Served) -> None:
    overrides = judge(served, "{text: 'a b c d'}", "reward.specs.judge.sampling.max_tokens=3")
    async with openai_client(served, *overrides) as client:
        answer = await client.chat.completions.create(model="judge", messages=MESSAGES)
        longer = await client.chat.completions.create(
            model="judge", messages=MESSAGES, max_completion_tokens=4
        )
    assert answer.choices[0].message.content == "a b c"
    assert longer.choices[0].message.content == "a b c d"


async def test_structured_output_reaches_the_engine(served: Served) -> None:
    async with openai_client(served, *judge(served, "{}")) as client:
        answer = await client.chat.completions.create(
            model="judge",
            messages=MESSAGES,
            extra_body={"structured_outputs": {"choice": ["good", "bad"]}},
        )
    # a fake engine takes the first choice
    assert answer.choices[0].message.content == "good"


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        ({"model": "other"}, 404, "there are judge"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 422, "tools is not"),
        ({"presence_penalty": 0.5}, 422, "presence_penalty is not"),
        ({"extra_body": {"structured_outputs": {"regex": "(a"}}}, 422, "no regular expression"),
        ({"extra_body": {"structured_outputs": {"regex": "a" * 10_001}}}, 422, "regex"),
        (
            {"extra_body": {"structured_outputs": {"regex": "a", "choice": ["b"]}}},
            422,
            "exclude each other",
        ),
        ({"messages": []}, 422, "messages"),
        ({"temperature": -1}, 422, "temperature"),
        ({"n": 100000}, 422, "n: "),
        ({"messages": [{"role": "user", "content": "x " * 9000}]}, 422, "context length"),
    ],
)
async def test_what_cannot_be_answered_is_refused(
    served: Served, request_: dict[str, object], status: int, words: str
) -> None:
    async with openai_client(served, *judge(served)) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(
                **{"model": "judge", "messages": MESSAGES, **request_}  # type: ignore[arg-type]
            )
    assert caught.value.status_code == status
    assert words in caught.value.message


async def test_a_regex_is_compiled_beside_the_other_requests(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15,000 characters of classes that take 8 ms each held everybody up for 26 s."""
    compiling, may_end = threading.Event(), threading.Event()
    others_were_answered: list[bool] = []

    def held(pattern: str) -> re.Pattern[str]:
        compiling.set()
        others_were_answered.append(may_end.wait(PATIENCE_S))
        return re.compile(pattern)

    monkeypatch.setattr(chat, "re", SimpleNamespace(compile=held, error=re.error))
    body = {"model": "judge", "messages": MESSAGES, "structured_outputs": {"regex": "[a-z]"}}
    overrides = judge(served, "{}")
    async with served.service(*overrides) as service, client_of(service) as client:
        posted = asyncio.create_task(client.post("/v1/chat/completions", json=body))
        assert await asyncio.to_thread(compiling.wait, PATIENCE_S)
        assert (await client.get("/readyz")).status_code == 200
        may_end.set()
        assert (await posted).status_code != 422
    assert others_were_answered == [True]


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": "a+"}}, "structured_outputs.regex"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
async def test_a_form_that_the_engine_cannot_give_is_refused_before_it(
    served: Served, form: dict[str, object], field: str
) -> None:
    keys = judge(served, "{}", "reward.engine.name=hf")
    service = Service(served.checked(*keys))
    (route, _) = ChatWire().routes(service)
    body = ChatBody.model_validate({"model": "judge", "messages": MESSAGES, **form})
    with pytest.raises(RequestError, match=r"\(hf\) cannot restrict") as caught:
        await route.answer(body, service)  # the service is not open: no engine is there
    assert (caught.value.status, caught.value.field) == (422, field)


async def test_a_failure_of_the_engine_is_no_text(served: Served) -> None:
    engine = "{failures: {1: provider_error}}"  # some token has a 1
    async with openai_client(served, *judge(served, engine)) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="judge", messages=MESSAGES)
    assert caught.value.status_code == 503
    assert "provider_error" in caught.value.message


def test_it_is_refused_before_the_start_where_nothing_writes(served: Served) -> None:
    with pytest.raises(ConfigError, match="no reward has a judge model"):
        make_app(Service(served.checked("serve.wires=[chat]")))


async def test_it_is_off_unless_named(served: Served) -> None:
    async with openai_client(served, *judge(served)[1:]) as client:
        with pytest.raises(openai.NotFoundError):
            await client.models.list()
