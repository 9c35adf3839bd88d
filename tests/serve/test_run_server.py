"""The server's life on a real socket, in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from rmrl.errors import ConfigError
from rmrl.serve import protocol
from rmrl.serve.checked import CheckedServer
from rmrl.serve.run_server import listening_socket, serve
from rmrl.serve.service import Service
from tests.patience import PATIENCE_S, expires
from tests.serve.conftest import Served
from tests.serve.test_service import HELD, SLOW

ROW = {"prompt": "p", "response": "0.5"}


@asynccontextmanager
async def running(
    served: Served, checked: CheckedServer
) -> AsyncIterator[tuple[str, Service, asyncio.Event, asyncio.Task[None]]]:
    """A server on a free port: its address, its service, what stops it, and its task."""
    ports: asyncio.Queue[tuple[Service, int]] = asyncio.Queue()
    stop = asyncio.Event()
    task = asyncio.create_task(
        serve(
            checked,
            lambda: served.scorer(checked),
            on_listening=lambda service, port: ports.put_nowait((service, port)),
            stop=stop,
        )
    )
    service, port = await ports.get()
    try:
        yield f"http://127.0.0.1:{port}", service, stop, task
    finally:
        stop.set()
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), PATIENCE_S)


async def ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.02)


async def test_what_was_accepted_is_finished_at_a_shutdown(served: Served) -> None:
    may_end = served.bench.folder / "may end"
    (served.bench.folder / "functions" / "slow.py").write_text(
        "import os, time\ndef compute_score(data_source, solution_str, ground_truth):\n"
        f"    while not os.path.exists({str(may_end)!r}):\n        time.sleep(0.01)\n"
        "    return 1.0\n"
    )
    checked = served.checked(*HELD, "serve.port=0", "reward.rule_workers=4")
    async with (
        running(served, checked) as (address, service, stop, task),
        httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as client,
    ):
        await ready(client)
        posts = [
            asyncio.create_task(client.post("/v1/score", json={"rows": [ROW]})) for _ in range(4)
        ]
        while service.requests < 4:
            await asyncio.sleep(0.01)
        stop.set()
        while not service.draining:
            await asyncio.sleep(0.01)
        refused = await client.post("/v1/score", json={"rows": [ROW]})
        may_end.touch()
        answers = await asyncio.gather(*posts)
        await asyncio.wait_for(task, PATIENCE_S)
    assert refused.status_code == 503
    assert [answer.json()["rows"][0]["reward"] for answer in answers] == [1.0] * 4


async def test_a_shutdown_ends_after_drain_s(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(protocol, "_ANSWERS_WRITTEN_S", 0.1)
    (served.bench.folder / "functions" / "slow.py").write_text(SLOW)
    checked = served.checked(*HELD, "serve.port=0", "serve.drain_s=0.2")
    async with (
        running(served, checked) as (address, service, stop, task),
        httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as client,
    ):
        await ready(client)
        body = {"rows": [{"prompt": "p", "response": "600"}]}
        post = asyncio.create_task(client.post("/v1/score", json=body))
        while not service.queue.rows:
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.wait_for(task, PATIENCE_S)
        assert "1 accepted requests were not finished in 0.2 s" in caplog.messages
        (answer,) = await asyncio.gather(post, return_exceptions=True)
        if isinstance(answer, httpx.Response):
            assert answer.status_code >= 500


async def test_a_connection_that_ends_frees_its_place(served: Served) -> None:
    (served.bench.folder / "functions" / "slow.py").write_text(SLOW)
    checked = served.checked(*HELD, "serve.port=0")
    async with (
        running(served, checked) as (address, service, _, _),
        httpx.AsyncClient(base_url=address, timeout=PATIENCE_S) as client,
    ):
        await ready(client)
        body = {"rows": [{"prompt": "p", "response": "600"}]}
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/score", json=body, timeout=expires(0.5))
        async with asyncio.timeout(PATIENCE_S):
            while service.requests:
                await asyncio.sleep(0.02)
        assert service.queue.rows == 0


async def test_a_port_in_use_is_a_sentence(served: Served) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        checked = served.checked(f"serve.port={other.getsockname()[1]}")
        with pytest.raises(ConfigError, match=r"cannot be used.*give another port"):
            await serve(checked, lambda: served.scorer(checked))


async def test_engines_that_cannot_start_end_the_server_with_their_error(served: Served) -> None:
    from rmrl.errors import EngineLoadError

    checked = served.checked(
        "reward.models=[judge]",
        f"reward.specs.judge.path={served.bench.folder}/judge-model",
        "++reward.specs.judge.engine.kwargs={fail_to_start: no memory}",
        "serve.port=0",
    )
    with pytest.raises(EngineLoadError, match="no memory"):
        await asyncio.wait_for(serve(checked, lambda: served.scorer(checked)), PATIENCE_S)


async def test_answers_are_sent_at_once(served: Served) -> None:
    """Without TCP_NODELAY an answer of two packets takes 40 ms more."""
    delays: asyncio.Queue[int] = asyncio.Queue()

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = writer.get_extra_info("socket")
        delays.put_nowait(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    place = listening_socket(served.checked("serve.port=0"))
    async with await asyncio.start_server(connected, sock=place):
        _, writer = await asyncio.open_connection(*place.getsockname())
        assert await asyncio.wait_for(delays.get(), PATIENCE_S) == 1
        writer.close()
