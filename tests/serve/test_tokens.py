"""Every route of every wire needs the token; those of a new wire are covered too."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from rmrl.serve.caller import OPEN_PATH
from rmrl.serve.wires import SERVE_WIRES
from tests.serve.conftest import BASE, Served

TOKEN = "sesame-1234"
WRONG = {
    "none": {},
    "empty": {"Authorization": ""},
    "another": {"Authorization": "Bearer sesame-1235"},
    "a part": {"Authorization": "Bearer sesame-123"},
    "longer": {"Authorization": "Bearer sesame-12345"},
    "another scheme": {"Authorization": f"Basic {TOKEN}"},
    "without a scheme": {"Authorization": TOKEN},
    "bytes": {"Authorization": b"Bearer \xff\xfe"},
}


BEARER = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def every_wire(served: Served, *overrides: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that speaks every wire."""
    judge = f"reward.specs.judge.path={served.bench.folder}/judge-model"
    wires = f"serve.wires=[{','.join(SERVE_WIRES)}]"
    async with served.client(wires, "reward.models=[judge]", judge, *overrides) as client:
        yield client


@pytest.fixture
async def client(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that needs the token."""
    monkeypatch.setenv("RMRL_TEST_TOKEN", TOKEN)
    async with every_wire(served, "serve.token_env=RMRL_TEST_TOKEN") as client:
        yield client


async def routes(client: httpx.AsyncClient) -> list[tuple[str, str]]:
    """(method, path) of every route, and those of the schema and of unknown paths."""
    schema = (await client.get("/openapi.json", headers=BEARER)).json()
    pairs = [("GET", "/openapi.json"), ("GET", "/nowhere"), ("POST", "/nowhere")]
    pairs.append(("PUT", "/metrics"))
    for path, methods in schema["paths"].items():
        pairs += [(method.upper(), path) for method in methods]
    return pairs


async def test_every_route_refuses_every_bad_token(client: httpx.AsyncClient) -> None:
    every = await routes(client)
    paths = {path for _, path in every}
    expected = {"/v1/score", "/get_reward", "/slime", "/verify", "/trl"}
    assert expected | {"/v1/chat/completions", "/v1/models", "/metrics"} <= paths
    for (method, path), (case, headers) in itertools.product(every, WRONG.items()):
        if path == OPEN_PATH:
            continue
        answer = await client.request(method, path, headers=headers, content=b"{}")
        assert answer.status_code == 401, (method, path, case)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in answer.text
    assert (await client.get(OPEN_PATH)).status_code == 200


async def test_every_route_accepts_the_token(client: httpx.AsyncClient) -> None:
    for method, path in await routes(client):
        answer = await client.request(method, path, headers=BEARER, json={})
        assert answer.status_code in (200, 400, 404, 405, 422), (method, path, answer.text)


async def test_without_a_token_every_route_refuses_other_host_names(served: Served) -> None:
    """A web page could otherwise reach the server through its own host name."""
    async with every_wire(served) as client:
        schema = (await client.get("/openapi.json")).json()
        for path, methods in schema["paths"].items():
            for method in methods:
                host = {"Host": "evil.example"}
                answer = await client.request(method, BASE + path, headers=host, content=b"{}")
                assert answer.status_code == (200 if path == OPEN_PATH else 403), (method, path)


async def test_the_open_path_takes_no_body_of_a_stranger(client: httpx.AsyncClient) -> None:
    sent: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        sent.append(b"a" * 1000)
        yield sent[-1]

    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = await client.request(method, OPEN_PATH, content=body())
        assert answer.status_code == 401, method
    assert sent == []
    assert (await client.post(OPEN_PATH, headers=BEARER)).status_code == 405


async def test_the_state_is_answered_to_head(client: httpx.AsyncClient) -> None:
    assert (await client.head(OPEN_PATH)).status_code == 200
    assert (await client.head("/readyz")).status_code == 401
    assert (await client.head("/readyz", headers=BEARER)).status_code == 200
