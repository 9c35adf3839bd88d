"""Calls of a training process to rollout engines, one of which dies in the middle of an update."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rmrl.cluster.engine_client import EngineClient
from rmrl.cluster.processes import RayHost, RayProcess
from rmrl.cluster.session import ray_session
from rmrl.errors import EngineLostError, StallError
from tests.patience import expires

PARTS = "tests.cluster.process_parts"


@pytest.fixture(scope="module", autouse=True)
def ray_here() -> Iterator[None]:
    with ray_session({"num_cpus": 2}, processes=3):
        yield


async def receiver(dies_at: int | None = None) -> RayProcess:
    settings = {"dies_at": dies_at}
    return await RayHost().spawn(f"{PARTS}:Receiver", settings, name="rollout")


def client_of(engines: list[RayProcess], **settings: Any) -> EngineClient:
    made = {"devices_per_engine": 1, "timeout_s": 60.0, "outlives_engines": True}
    return EngineClient(engines, **(made | settings))


def send(client: EngineClient) -> None:
    """A whole update, as vLLM's training side makes it."""
    client.version = 7
    client.start_weight_update()
    for part in range(3):
        client.update_weights(part)
    client.finish_weight_update()


async def test_an_update_goes_on_without_the_engine_that_died() -> None:
    engines = list(await asyncio.gather(receiver(), receiver(dies_at=1)))
    client = client_of(engines)
    await asyncio.to_thread(send, client)
    assert not client.complete
    assert await engines[0].call("received", timeout_s=60) == ["start", 0, 1, 2, "version 7"]
    with pytest.raises(EngineLostError):
        await engines[1].alive(timeout_s=60)
    for engine in engines:
        await engine.kill()


async def test_an_update_that_waits_for_every_engine_ends_with_the_one_that_died() -> None:
    engines = list(await asyncio.gather(receiver(), receiver(dies_at=1)))
    client = client_of(engines, outlives_engines=False)
    with pytest.raises(EngineLostError, match=r"the process of rollout\.update_weights died"):
        await asyncio.to_thread(send, client)
    assert await engines[0].call("received", timeout_s=60) in (["start", 0], ["start", 0, 1])
    for engine in engines:
        await engine.kill()


async def test_an_engine_that_does_not_answer_is_a_stall() -> None:
    engine = await receiver()
    with pytest.raises(StallError, match="hang of the rollout engines did not finish within 1 s"):
        await asyncio.to_thread(client_of([engine], timeout_s=expires(1.0))._all, "hang")
    await engine.kill()
