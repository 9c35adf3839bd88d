"""The endpoint from which environments sample."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest

from rmrl.environments.endpoint import Conversing, Endpoint
from rmrl.types import Generation, Sampling
from tests.patience import expires


class FakeEngine:
    """Draws tokens 7, and keeps how it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[list[int], Sampling, str]] = []

    async def draw(self, tokens: Any, sampling: Sampling, key: str) -> Generation:
        self.requests.append((list(tokens), sampling, key))
        ids = [7] * min(3, sampling.max_tokens)
        return Generation(
            prompt_index=0,
            sample_index=0,
            text="",
            token_ids=np.asarray(ids),
            logprobs=np.full(len(ids), -0.5),
            finish_reason="stop" if len(ids) == 3 else "length",
        )


class Client:
    def __init__(self, endpoint: Endpoint, engine: FakeEngine) -> None:
        self.endpoint = endpoint
        self.engine = engine
        self.address = f"{endpoint.url}/inference/v1/generate"
        self.web = httpx.AsyncClient(timeout=60)

    def headers(self, *, trace: str = "one", token: str = "") -> dict[str, str]:
        bearer = f"Bearer {token or self.endpoint.token}"
        return {"Authorization": bearer, "X-Session-ID": trace}

    async def ask(self, body: Any, **changes: str) -> httpx.Response:
        return await self.web.post(self.address, json=body, headers=self.headers(**changes))


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    endpoint = Endpoint(model="m", max_model_len=10)
    engine = FakeEngine()
    sample = Conversing(draw=engine.draw, sampling=Sampling(max_tokens=5, temperature=0.7, seed=3))
    async with endpoint.listening():
        endpoint.open("one", sample)
        made = Client(endpoint, engine)
        yield made
        await made.web.aclose()


async def test_an_answer_in_vllms_form(client: Client):
    answer = (await client.ask({"model": "m", "token_ids": [1, 2]})).json()
    choice = answer["choices"][0]
    assert choice["token_ids"] == [7, 7, 7]
    assert choice["finish_reason"] == "stop"
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["token_id:7"] * 3
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == [-0.5] * 3
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


async def test_the_run_decides_how_is_sampled(client: Client):
    parameters = {"temperature": 0.1, "top_p": 0.2, "seed": 1, "max_tokens": 2}
    body = {"token_ids": [1], "sampling_params": {**parameters, "stop_token_ids": [2, 9]}}
    await client.ask(body)
    ((_, sampling, key),) = client.engine.requests
    assert (sampling.temperature, sampling.top_p, sampling.n) == (0.7, 1.0, 1)
    assert (sampling.max_tokens, sampling.stop_token_ids) == (2, (2, 9))
    assert key == "one"


async def test_tokens_of_all_turns_and_the_context_are_limits(client: Client):
    await client.ask({"token_ids": [1]})
    second = await client.ask({"token_ids": [1] * 9})
    third = await client.ask({"token_ids": [1] * 2})
    fourth = await client.ask({"token_ids": [1] * 2})
    # 3 of 5; then the context leaves 10 - 9 = 1; then 5 - 4 = 1
    assert [request[1].max_tokens for request in client.engine.requests] == [5, 1, 1]
    assert [second.status_code, third.status_code, fourth.status_code] == [200, 200, 400]
    assert "has its 5 tokens already" in fourth.json()["error"]["message"]


async def test_equal_prompts_draw_with_their_own_seeds_in_any_order(client: Client):
    for tokens in ([1], [2], [1]):
        await client.ask({"token_ids": tokens, "sampling_params": {"max_tokens": 1}})
    seeds = [request[1].seed for request in client.engine.requests]
    assert len(set(seeds)) == 3
    other = Conversing(draw=client.engine.draw, sampling=Sampling(max_tokens=5, seed=3))
    again = [other.sampling_behind(tokens).seed for tokens in ([2], [1], [1])]
    assert again == [seeds[1], seeds[0], seeds[2]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "token_ids: give the prompt's token ids"),
        ({"token_ids": []}, "token_ids: give"),
        ({"token_ids": [1, "2"]}, "token_ids: give"),
        ({"token_ids": [-1]}, "token_ids: give"),
        ({"token_ids": [True]}, "token_ids: give"),
        ({"token_ids": [1], "sampling_params": 3}, "sampling_params: give an object"),
        ({"token_ids": [1], "sampling_params": {"max_tokens": 0}}, "max_tokens: give a whole"),
        ({"token_ids": [1], "sampling_params": {"stop_token_ids": [1.5]}}, "stop_token_ids: give"),
        ({"token_ids": [1], "features": {"image": 1}}, "reads text alone"),
        ({"token_ids": [1] * 10}, "maximum context length is 10 tokens"),
    ],
)
async def test_a_malformed_request_is_a_400(client: Client, body: Any, message: str):
    answer = await client.ask(body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert client.engine.requests == []


async def test_who_may_ask(client: Client):
    body = {"token_ids": [1]}
    assert (await client.ask(body, token="guess")).status_code == 401
    bare = await client.web.post(client.address, json=body)
    assert bare.status_code == 401
    assert client.engine.requests == []


async def test_the_context_is_stated(client: Client):
    headers = {"Authorization": f"Bearer {client.endpoint.token}"}
    answer = await client.web.get(f"{client.endpoint.url}/v1/models", headers=headers)
    assert answer.json()["data"] == [{"id": "m", "object": "model", "max_model_len": 10}]
    other = await client.web.get(f"{client.endpoint.url}/v1/chat", headers=headers)
    assert other.status_code == 404


async def test_a_body_that_is_no_json(client: Client):
    answer = await client.web.post(client.address, content=b"{", headers=client.headers())
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "the body is no JSON")


async def test_a_trace_that_is_over_is_refused(client: Client):
    client.endpoint.end("one")
    answer = await client.ask({"token_ids": [1]})
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "this sample is over")


async def test_a_request_may_come_before_its_trace_is_announced(client: Client):
    early = asyncio.create_task(client.ask({"token_ids": [1]}, trace="two"))
    await client.ask({"token_ids": [1]})
    assert not early.done()
    sample = Conversing(draw=client.engine.draw, sampling=Sampling(max_tokens=5))
    client.endpoint.open("two", sample)
    assert (await early).status_code == 200


async def test_a_trace_that_nobody_announces(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rmrl.environments.endpoint._UNKNOWN_S", expires(0.1))
    answer = await client.ask({"token_ids": [1]}, trace="three")
    assert answer.status_code == 404
    assert "X-Session-ID=three: there is no such trace" in answer.json()["error"]["message"]
