import asyncio
import threading
from typing import Any

import pytest

from rmrl.errors import ConfigError
from rmrl.rewards.remote import client as client_module
from rmrl.rewards.remote.client import HTTPClient, RemoteCallError
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.together import together
from tests.patience import PATIENCE_S
from tests.rewards.remote.server import KEY, Reply, Seen, Server, arrival, script, serving


def client_of(server: Server, **changes: Any) -> HTTPClient:
    given: dict[str, Any] = {
        "url": server.url + "/score",
        "wire": "slime",
        "timeout_s": PATIENCE_S,
    } | changes
    return HTTPClient(HTTPSpec(**given), backoff_s=0.01)


async def failure_of(client: HTTPClient, body: Any = 1) -> RemoteCallError:
    with pytest.raises(RemoteCallError) as caught:
        await client.post(body)
    await client.aclose()
    return caught.value


async def test_an_answer_and_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", f" {KEY}\n")
    with serving(script(Reply({"reward": 1.5}))) as server:
        client = client_of(server, api_key_env="JUDGE_KEY", headers={"X-Team": "seven"})
        assert await client.post({"lone surrogate": "\ud800", "ü": 1}) == {"reward": 1.5}
        assert await client.post([], "/deeper") == {"reward": 1.5}
        await client.aclose()
    assert [seen.path for seen in server.seen] == ["/score", "/score/deeper"]
    assert server.seen[0].body == {"lone surrogate": "\ud800", "ü": 1}
    assert server.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert server.seen[0].headers["X-Team"] == "seven"


async def test_connections_are_reused_and_never_more_than_allowed() -> None:
    with serving(script(Reply(1, delay_s=0.02))) as server:
        client = client_of(server, max_concurrency=4)
        assert await together(client.post(i) for i in range(40)) == [1] * 40
        await client.aclose()
    assert len(server.seen) == 40
    assert 1 <= server.sockets <= 4
    assert server.most <= 4


async def test_sixty_four_at_once() -> None:
    all_have_come = threading.Event()

    def answer(seen: Seen) -> Reply:
        if seen.number == 64:
            all_have_come.set()
        assert all_have_come.wait(PATIENCE_S)
        return Reply(seen.body)

    with serving(answer) as server:
        client = client_of(server, max_concurrency=64, timeout_s=2 * PATIENCE_S)
        assert await together(client.post(i) for i in range(64)) == list(range(64))
        await client.aclose()
    assert server.most == 64


@pytest.mark.parametrize(
    "broken", [Reply({"error": {"message": "oh"}}, 500), Reply(b"<html>", 502), Reply(hang_up=True)]
)
async def test_server_errors_and_broken_connections_are_tried_again(broken: Reply) -> None:
    with serving(script(broken, broken, broken, Reply(7))) as server:
        client = client_of(server)
        assert await client.post(1) == 7
        await client.aclose()
    assert len(server.seen) == 4


async def test_tries_end() -> None:
    with serving(script(Reply({"error": {"message": "the disk is full"}}, 500))) as server:
        error = await failure_of(client_of(server, max_tries=3))
    assert len(server.seen) == 3
    assert error.failure == "provider_error"
    assert "all 3 tries failed" in error.detail
    assert "500 Internal Server Error: the disk is full" in error.detail
    assert f"{server.url}/score" in error.detail


async def test_nobody_listens() -> None:
    with serving(script(Reply(1))) as server:
        pass
    error = await failure_of(client_of(server, max_tries=2))
    assert error.failure == "provider_error"
    assert "ConnectError" in error.detail


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_a_refused_request_is_not_sent_again(status: int) -> None:
    body = {"error": {"message": "no such model", "code": "model_not_found"}}
    with serving(script(Reply(body, status))) as server:
        error = await failure_of(client_of(server))
    assert len(server.seen) == 1
    assert (error.failure, error.code) == ("provider_error", "model_not_found")
    assert str(status) in error.detail
    assert "no such model" in error.detail


async def test_an_empty_purse_is_not_tried_again() -> None:
    with serving(
        script(Reply({"error": {"message": "no credit", "code": "insufficient_quota"}}, 429))
    ) as server:
        error = await failure_of(client_of(server))
    assert len(server.seen) == 1
    assert error.failure == "provider_error"


async def test_a_redirect_is_not_followed() -> None:
    with (
        serving(script(Reply(1))) as other,
        serving(script(Reply("", 307, {"Location": f"{other.url}/x?token=abc"}))) as server,
    ):
        error = await failure_of(client_of(server))
    assert other.seen == []
    assert f"points to {other.url}/x" in error.detail
    assert "abc" not in error.detail


async def test_closing_cancels_what_waits() -> None:
    with serving(script(Reply(1, delay_s=600.0), Reply(1))) as server:
        client = client_of(server, max_concurrency=1, max_tries=1)
        work = [asyncio.create_task(client.post(i)) for i in range(3)]
        await arrival(server, 1)
        await client.aclose()
        ended = await asyncio.gather(*work, return_exceptions=True)
        assert [error.failure for error in ended if isinstance(error, RemoteCallError)] == [
            "cancelled"
        ] * 3
        assert len(server.seen) == 1
        assert await client.post(1) == 1  # a new one opens new connections
        await client.aclose()


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"", b"[" * 100_000, b"caf\xe9"])
async def test_an_answer_that_is_no_json(body: bytes) -> None:
    with serving(script(Reply(body))) as server:
        error = await failure_of(client_of(server))
    assert len(server.seen) == 1
    assert error.failure == "provider_error"
    assert "no JSON" in error.detail
    assert len(error.detail) < 500


async def test_an_answer_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 2**20)
    with serving(script(Reply(b"1" * 2**22))) as server:
        error = await failure_of(client_of(server))
    assert len(server.seen) == 1
    assert "longer than 1 MiB" in error.detail


async def test_a_compressed_answer_is_measured_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 2**20)
    with serving(
        script(Reply(gzip.compress(b"1" * 2**22), headers={"Content-Encoding": "gzip"}))
    ) as server:
        error = await failure_of(client_of(server))
    assert "longer than 1 MiB" in error.detail


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_the_key_is_in_no_error(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)

    def echo(seen: Seen) -> Reply:
        return Reply(
            f"you sent {seen.headers['Authorization']} and {seen.headers['X-Other']}".encode(),
            status,
        )

    with serving(echo) as server:
        client = client_of(
            server, api_key_env="JUDGE_KEY", headers={"X-Other": "other-secret"}, max_tries=2
        )
        error = await failure_of(client)
    assert "you sent" in error.detail
    assert "<secret>" in error.detail
    assert KEY not in f"{error.detail} {error!r} {client!r} {vars(error)}"
    assert "other-secret" not in error.detail


def test_a_key_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    spec = HTTPSpec(url="http://127.0.0.1:9", wire="openai", api_key_env="JUDGE_KEY")
    with pytest.raises(ConfigError, match="JUDGE_KEY is not set"):
        HTTPClient(spec)
    monkeypatch.setenv("JUDGE_KEY", "sk-\nsecret-\x01part")
    with pytest.raises(ConfigError, match="JUDGE_KEY holds characters") as caught:
        HTTPClient(spec)
    assert "secret-" not in str(caught.value)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with serving(script(Reply(1))) as server:
        client = client_of(server)
        assert await client.post(1) == 1
        await client.aclose()


def test_specs_that_differ_share_nothing() -> None:
    one = HTTPSpec(url="http://a", wire="openai", headers={"a": "1"}, extra_body={"b": [1]})
    assert (
        one.key
        == HTTPSpec(url="http://a", wire="openai", headers={"a": "1"}, extra_body={"b": [1]}).key
    )
    assert (
        one.key
        != HTTPSpec(url="http://a", wire="openai", headers={"a": "1"}, extra_body={"b": [2]}).key
    )
