"""Bodies that would keep the server from its other requests: too many values, and work on large
ones."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest

from rmrl.serve import answers, bodies, service
from rmrl.serve.bodies import MOST_LONG_DIGITS, SMALL_BYTES, check_count, parsed
from rmrl.serve.problems import RequestError
from tests.patience import PATIENCE_S
from tests.serve.conftest import Served

ROW = {"prompt": "p", "response": "four"}
JSON_TYPE = {"Content-Type": "application/json"}
MANY = 20_000
FORMS = {
    "lists": [[]] * MANY,
    "keys": {f"key {number}": 0 for number in range(MANY)},
    "numbers": [1] * 2 * MANY,
    "texts": ["four"] * MANY,
}


def body_with(value: Any) -> bytes:
    return json.dumps({"rows": [{**ROW, "extra_info": {"a": value}}]}).encode()


@pytest.mark.parametrize("form", FORMS)
async def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(
    served: Served, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    sizes: list[int] = []

    def watched(body: bytes) -> Any:
        sizes.append(len(body))
        return parsed(body)

    monkeypatch.setattr(bodies, "parsed", watched)
    body = body_with(FORMS[form])
    assert len(body) > SMALL_BYTES
    async with served.client("serve.max_body_values=10000") as client:
        refused = await client.post("/v1/score", content=body, headers=JSON_TYPE)
    async with served.client("serve.max_body_values=100000") as client:
        accepted = await client.post("/v1/score", content=body, headers=JSON_TYPE)
    assert refused.status_code == 413
    assert "more than 10000 values, keys and lists" in refused.json()["error"]["message"]
    assert "serve.max_body_values" in refused.json()["error"]["message"]
    assert accepted.status_code == 200
    assert sizes == [len(body)]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    ("text", "count"),
    [
        (r'{"a": [1, [], "b"], "c": {}}', 9),  # { : [ , [ , , : {
        (r'["[,:{", "\",[\\", ",\\\\", "\\\"["]', 4),
        (r'{"rows": "' + "[," * 50 + '"}', 2),
        ("7", 0),
    ],
)
def test_values_are_counted_outside_of_texts(
    monkeypatch: pytest.MonkeyPatch, text: str, count: int, piece_bytes: int
) -> None:
    monkeypatch.setattr(bodies, "_PIECE_BYTES", piece_bytes)
    check_count(text.encode(), count)
    if count:
        with pytest.raises(RequestError, match=f"more than {count - 1} values"):
            check_count(text.encode(), count - 1)


def test_long_integers_are_limited_together() -> None:
    digits = 2_000
    peak = MOST_LONG_DIGITS // digits
    assert parsed(b"[%s]" % b",".join([b"9" * digits] * peak)) == [10**digits - 1] * peak
    with pytest.raises(RequestError, match="send them as strings"):
        parsed(b"[%s]" % b",".join([b"9" * digits] * (peak + 1)))
    assert len(parsed(b"[%s]" % b",".join([b"9" * 100] * 10_000))) == 10_000


STAGES = {
    "parsing": (bodies, "parsed"),
    "checking the rows": (service, "read_rows"),
    "rows of responses": (service, "response_rows"),
    "writing the answer": (answers, "json_bytes"),
}


@pytest.mark.parametrize("stage", STAGES)
async def test_healthz_is_answered_while_a_large_body_is_worked_on(
    served: Served, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """The stage goes on when /healthz has been answered, and not before."""
    begun, answered = threading.Event(), threading.Event()
    module, name = STAGES[stage]
    function = getattr(module, name)
    loop_thread = threading.current_thread()
    in_order: list[bool] = []

    def after_healthz(*arguments: Any) -> Any:
        if threading.current_thread() is not loop_thread:
            begun.set()
            in_order.append(answered.wait(PATIENCE_S))
        return function(*arguments)

    monkeypatch.setattr(module, name, after_healthz)
    async with served.client() as client:
        body = body_with("x" * 2 * SMALL_BYTES)
        post = asyncio.create_task(client.post("/v1/score", content=body, headers=JSON_TYPE))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        assert (await client.get("/healthz")).status_code == 200
        answered.set()
        assert (await post).status_code == 200
    assert in_order == [True]


async def test_large_bodies_are_parsed_one_after_another(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.Lock()
    under_way: list[bytes] = []
    peak = 0

    def watched(body: bytes) -> Any:
        nonlocal peak
        with lock:
            under_way.append(body)
            peak = max(peak, len(under_way))
        value = parsed(body)
        with lock:
            under_way.remove(body)
        return value

    monkeypatch.setattr(bodies, "parsed", watched)

    async def post(client: httpx.AsyncClient) -> int:
        body = body_with(FORMS["lists"])
        return (await client.post("/v1/score", content=body, headers=JSON_TYPE)).status_code

    async with served.client() as client:
        codes = await asyncio.gather(*[post(client) for _ in range(6)])
    assert (codes, peak) == ([200] * 6, 1)


async def test_a_type_that_a_web_page_may_send_is_refused(served: Served) -> None:
    async with served.client() as client:
        for name in ("text/plain", "text/plain; charset=json", "multipart/form-data"):
            answer = await client.post(
                "/v1/score", content=body_with(1), headers={"Content-Type": name}
            )
            assert answer.status_code == 422, name
        for name in ("application/json; charset=utf-8", "application/vnd.x+json"):
            answer = await client.post(
                "/v1/score", content=body_with(1), headers={"Content-Type": name}
            )
            assert answer.status_code == 200, name
