"""What every request passes: token, host name, size, time, JSON, and a connection that ends."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from rmrl.serve import bodies
from rmrl.serve.app import make_app
from rmrl.serve.bodies import parsed
from rmrl.serve.service import Service
from rmrl.serve.wires import SERVE_WIRES
from rmrl.serve.wires.chat import ChatBody
from rmrl.serve.wires.decisions import DecisionsBody
from rmrl.serve.wires.systemone import SystemOneBody
from tests.patience import PATIENCE_S, expires
from tests.serve.conftest import Served, client_of

TOKEN = "s3cret-of-this-test"
ROUTES = [
    ("POST", "/v1/score"),
    ("GET", "/v1/rewards"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/nowhere"),
    ("DELETE", "/v1/score"),
]
ROW = {"prompt": "p", "response": "four"}


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_but_healthz_refuses_a_wrong_token(
    served: Served, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    monkeypatch.setenv("TEST_TOKEN", TOKEN)
    wrong: list[dict[str, Any]] = [
        {},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": "Bearer "},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": b"Bearer \xff\xfe"},
    ]
    async with served.client("serve.token_env=TEST_TOKEN") as client:
        for headers in wrong:
            answer = await client.request(method, path, headers=headers)
            assert answer.status_code == 401, headers
            assert answer.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in answer.text
        right = {"Authorization": f"bearer {TOKEN}"}
        assert (await client.request(method, path, headers=right)).status_code != 401
        assert (await client.get("/healthz")).status_code == 200


async def test_a_web_page_with_a_name_for_this_machine_is_refused(served: Served) -> None:
    async with served.client() as client:
        refused = await client.post("/v1/score", json={"rows": [ROW]}, headers={"Host": "evil.org"})
        local = await client.get("/readyz", headers={"Host": "[::1]:8765"})
    assert refused.status_code == 403
    assert "serve.token_env" in refused.json()["error"]["message"]
    assert local.status_code == 200


async def test_a_body_is_limited_with_and_without_its_stated_size(served: Served) -> None:
    large = json.dumps({"rows": [{**ROW, "response": "x" * 20_000}]}).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 1000):
            yield large[start : start + 1000]

    json_type = {"Content-Type": "application/json"}
    async with served.client("serve.max_body_mb=0.01") as client:
        stated = await client.post("/v1/score", content=large, headers=json_type)
        unstated = await client.post("/v1/score", content=pieces(), headers=json_type)
        small = await client.post("/v1/score", json={"rows": [ROW]})
        metrics = (await client.get("/metrics")).text
    assert 'code="413",route="/v1/score"} 2.0' in metrics
    assert (stated.status_code, unstated.status_code, small.status_code) == (413, 413, 200)
    assert "serve.max_body_mb" in unstated.json()["error"]["message"]


async def test_the_bodies_of_all_requests_share_a_bound(served: Served) -> None:
    keys = ("serve.max_body_mb=0.01", "serve.max_bodies_mb=0.015")
    body = json.dumps({"rows": [{**ROW, "response": "x" * 9_000}]}).encode()
    counted, release = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield body[:9_000]
        counted.set()  # the server has asked for the next piece
        await release.wait()
        yield body[9_000:]

    json_type = {"Content-Type": "application/json"}
    async with served.client(*keys) as client:
        first = asyncio.create_task(client.post("/v1/score", content=slow(), headers=json_type))
        await asyncio.wait_for(counted.wait(), PATIENCE_S)
        second = await client.post("/v1/score", content=body, headers=json_type)
        release.set()
        assert (await first).status_code == 200
        third = await client.post("/v1/score", content=body, headers=json_type)
    assert second.status_code == 429
    assert int(second.headers["retry-after"]) > 0
    assert third.status_code == 200


async def test_a_body_that_never_ends_is_answered_in_time(served: Served) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()
        yield b"}"

    async with served.client(f"serve.body_timeout_s={expires(0.05)}") as client:
        answer = await client.post("/v1/score", content=endless())
    assert answer.status_code == 408


async def test_a_header_that_names_the_caller_twice_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", TOKEN)
    right = ("Authorization", f"Bearer {TOKEN}")
    async with served.client("serve.token_env=TEST_TOKEN") as client:
        for other in (right, ("authorization", "Bearer other")):
            answer = await client.get("/readyz", headers=[right, other])
            assert answer.status_code == 400
            assert answer.json()["error"]["message"] == "send the header Authorization once"
    async with served.client() as client:
        hosts = [("Host", "127.0.0.1"), ("Host", "evil.org")]
        assert (await client.get("/readyz", headers=hosts)).status_code == 400


GARBAGE = {
    "nothing": (b"", "body"),
    "no json": (b"{", "body"),
    "nan": (b'{"rows": [{"prompt": "p", "response": "r", "extra_info": {"x": NaN}}]}', "body"),
    "infinity": (b'{"rows": [{"prompt": "p", "response": "r", "x": -Infinity}]}', "body"),
    "1e999": (b'{"rows": [{"prompt": "p", "response": "r", "x": 1e999}]}', "body"),
    "digits": (b'{"rows": [{"prompt": "p", "response": "r", "x": ' + b"9" * 5000 + b"}]}", "body"),
    "utf-8": (b'{"rows": [{"prompt": "\xff", "response": "r"}]}', "body"),
    "deep": (b'{"rows": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "body"),
    "deeper than rows need": (b'{"rows": [{"x": ' + b"[" * 80 + b"]" * 80 + b"}]}", "body"),
    "half a letter in a key": (
        b'{"rows": [{"prompt": "p", "response": "r", "\\ud83d": 1}]}', "body"),
    "half a letter in a key of a column": (
        b'{"rows": [{"prompt": "p", "response": "r", "extra_info": {"\\ud83d": 1}}]}', "body"),
    "fields": (b"{" + b",".join(b'"%d": 1' % i for i in range(1001)) + b"}", "body"),
    "a list": (b"[]", "body"),
    "null": (b"null", "body"),
    "no rows": (b'{"rows": []}', "rows"),
    "rows of numbers": (b'{"rows": [1]}', "rows[0]"),
    "unknown field": (b'{"rows": [{"prompt": "p", "response": "r"}], "steam": true}', "steam"),
    "deadline": (b'{"rows": [{"prompt": "p", "response": "r"}], "timeout_s": -1}', "timeout_s"),
    "no response": (b'{"rows": [{"prompt": "p", "response": "r"}, {"prompt": "p"}]}',
                    "rows[1].response"),
    "response of a number": (b'{"rows": [{"prompt": "p", "response": 7}]}', "rows[0].response"),
    "response and responses": (
        b'{"rows": [{"prompt": "p", "response": "r", "responses": ["r"]}]}', "rows[0].responses"),
    "no prompt": (b'{"rows": [{"response": "r"}]}', "rows[0].prompt"),
    "roles": (b'{"rows": [{"prompt": [{"role": "king", "content": "x"}], "response": "r"}]}',
              "rows[0].prompt"),
    "tokens": (b'{"rows": [{"prompt": "p", "response": "r", "response_tokens": 1'
               + b"0" * 4000 + b"}]}", "rows[0].response_tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", GARBAGE)
async def test_a_body_that_cannot_be_scored_is_answered_422_with_its_field(
    served: Served, name: str
) -> None:
    body, field = GARBAGE[name]
    async with served.client() as client:
        answer = await client.post(
            "/v1/score", content=body, headers={"Content-Type": "application/json"}
        )
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["field"] == field
    assert answer.json()["error"]["message"]


LARGE = {
    "/v1/score": b'{"rows": [%s]}',
    "/get_reward": b'{"prompts": ["p"], "query": ["p"], "labels": [%s]}',
    "/slime": b"[%s]",
    "/verify": b'{"responses_create_params": {"input": [%s]}, "response": {"output": []}}',
    "/trl": b'{"prompts": [%s], "completions": ["c"]}',
}


@pytest.mark.parametrize("path", LARGE)
async def test_many_bad_entries_are_one_error(served: Served, path: str) -> None:
    """An error for each of 300,000 entries took seconds, in which nobody else was answered: the
    first one ends the reading (see `fail_fast` below)."""
    body = LARGE[path] % b",".join([b"true"] * 300_000)
    wires = "serve.wires=[native,openrlhf,slime,nemo_gym,trl]"
    limits = ("serve.max_body_mb=2", "serve.max_body_values=1000000")
    async with served.client(wires, *limits) as client:
        answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["field"].endswith("[0]")


def lists_in(schema: Any) -> Iterator[dict[str, Any]]:
    """All lists of a pydantic schema whose entries are checked."""
    if isinstance(schema, dict):
        if schema.get("type") == "list" and schema.get("items_schema", {}).get("type") != "any":
            yield schema
        for each in schema.values():
            yield from lists_in(each)
    elif isinstance(schema, list | tuple):
        for each in schema:
            yield from lists_in(each)


OF_JUDGES = {"chat": [ChatBody], "decisions": [DecisionsBody], "systemone": [SystemOneBody]}


def test_every_list_of_a_body_ends_at_its_first_error(served: Served) -> None:
    service = Service(served.checked())
    seen = 0
    for name in SERVE_WIRES:
        # These need a judge.
        kinds: list[Any] = OF_JUDGES.get(name, [])
        if not kinds:
            kinds = [route.body for route in SERVE_WIRES[name]().routes(service)]
        for body in kinds:
            if body is None:
                continue
            for schema in lists_in(TypeAdapter(body).core_schema):
                seen += 1
                assert schema.get("fail_fast"), (name, body)
    assert seen >= 10


async def test_too_many_rows_are_refused_before_one_is_read(served: Served) -> None:
    wires = "serve.wires=[native,openrlhf,slime,trl]"
    bad = {"prompt": "p", "response": "r", "ground_truth": True}
    too_many: dict[str, Any] = {
        "/v1/score": {"rows": [bad] * 3},
        "/slime": [{"prompt": "p", "response": "r"}] * 3,
        "/get_reward": {"query": ["q"] * 3, "prompts": ["p"] * 3},
        "/trl": {"prompts": ["p"] * 3, "completions": ["r"]},
    }
    async with served.client(wires, "serve.max_rows=2") as client:
        for path, body in too_many.items():
            answer = await client.post(path, json=body)
            assert answer.status_code == 413, (path, answer.text)


async def test_a_large_body_is_parsed_beside_the_other_requests(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def watched(body: bytes) -> Any:
        threads.append(threading.current_thread())
        return parsed(body)

    monkeypatch.setattr(bodies, "parsed", watched)
    own = threading.current_thread()
    async with served.client() as client:
        for size in (10, 100_000):
            row = {**ROW, "response": "x" * size}
            answer = await client.post("/v1/score", json={"rows": [row]})
            assert answer.status_code == 200
    assert [thread is own for thread in threads] == [True, False]


async def test_odd_values_are_scored(served: Served) -> None:
    rows = [
        {"prompt": "\ud83d", "response": "\ud83d"},
        {"prompt": "p", "response": "", "extra_info": {"big": 10**4000}},
        {"prompt": "p", "response": "x", "prompt_id": [1, {"a": None}], "ground_truth": 3},
        {"prompt": "p", "response": "\x00", "ability": [[]], "data_source": ""},
    ]
    async with served.client() as client:
        answer = await client.post(
            "/v1/score",
            content=json.dumps({"rows": rows}),
            headers={"Content-Type": "application/json"},
        )
    assert answer.status_code == 200, answer.text
    assert [row["score_length"] for row in answer.json()["rows"]] == [0.1, 0.0, 0.1, 0.1]


async def test_another_content_type_is_refused(served: Served) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/score", content=b'{"rows": []}')
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


async def test_no_route_and_no_method_are_json_too(served: Served) -> None:
    async with served.client() as client:
        nowhere = await client.get("/nowhere")
        method = await client.get("/v1/score")
        metrics = (await client.get("/metrics")).text
    assert 'code="404",route="other"} 1.0' in metrics
    assert (nowhere.status_code, method.status_code) == (404, 405)
    assert nowhere.json()["error"]["message"]
    assert "POST" in method.headers["allow"]


async def test_a_client_that_goes_away_frees_its_place(served: Served) -> None:
    slow = served.bench.folder / "functions" / "slow.py"
    slow.write_text(
        "import time\ndef compute_score(data_source, solution_str, ground_truth):\n"
        "    time.sleep(600)\n    return 1.0\n"
    )
    async with served.service("reward.models=[slow]", "reward.rule_timeout_s=600") as service:
        app = make_app(service)
        body = json.dumps({"rows": [ROW]}).encode()
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        messages.put_nowait({"type": "http.request", "body": body, "more_body": False})
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/v1/score", "raw_path": b"/v1/score",
            "query_string": b"", "root_path": "", "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }  # fmt: skip
        request = asyncio.create_task(app(scope, messages.get, send))
        while not service.queue.rows:
            await asyncio.sleep(0.01)
        messages.put_nowait({"type": "http.disconnect"})
        async with asyncio.timeout(PATIENCE_S):
            await request
        assert (service.queue.rows, service.requests, sent) == (0, 0, [])
        assert b'code="499",route="/v1/score"' in service.metrics.text()


async def test_the_log_holds_no_texts_no_query_and_no_token(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="rmrl")
    monkeypatch.setenv("TEST_TOKEN", TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}

    async with served.service("serve.token_env=TEST_TOKEN") as service:

        async def broken(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError(" ".join(["a", "pri" + "vate", "text"]))

        async with client_of(service, headers=headers) as client:
            ok = await client.post("/v1/score?key=private", json={"rows": [ROW]})
            monkeypatch.setattr(service, "score", broken)
            fault = await client.post("/v1/score", json={"rows": [ROW]})
    assert (ok.status_code, fault.status_code) == (200, 500)
    assert "private" not in fault.text
    assert "POST /v1/score 200" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    for secret in ("private", "four", TOKEN):
        assert secret not in "".join(record.getMessage() for record in caplog.records)


async def test_the_openapi_page_describes_the_bodies_and_every_error(served: Served) -> None:
    async with served.client() as client:
        page = (await client.get("/openapi.json")).json()
    score = page["paths"]["/v1/score"]["post"]
    reference = score["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    body = page["components"]["schemas"][reference.rpartition("/")[2]]
    assert set(body["properties"]) == {"rows", "stream", "timeout_s"}
    assert set(score["responses"]) >= {"200", "401", "413", "422", "429", "503", "504"}
