"""What is started together is there as a whole or not at all; engines on CPU are spread over the
nodes."""

from __future__ import annotations

import asyncio

import pytest

from rmrl.trainer.allocations import all_or_none
from rmrl.trainer.start_rollouts import spread
from tests.support.fake_processes import FakeHost

ECHO = "tests.trainer.test_allocations:Echo"


class Echo:
    """A process that does nothing."""


class Holder:
    """What holds processes of its own."""

    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True


def test_what_was_started_ends_when_its_neighbour_fails() -> None:
    host, holder = FakeHost(), Holder()

    async def hold() -> Holder:
        return holder

    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("no room")

    async def never() -> None:
        await asyncio.sleep(60)
        raise AssertionError("not stopped")

    with pytest.raises(ValueError, match="no room"):
        asyncio.run(all_or_none(host.spawn(ECHO, {}, name="first"), hold(), fails(), never()))
    assert len(host.spawned) == 1
    assert (host.living, holder.closed) == ([], True)


def test_all_results_in_their_order() -> None:
    host = FakeHost()

    async def start() -> list[str]:
        return [
            process.name
            for process in await all_or_none(
                *(host.spawn(ECHO, {}, name=name) for name in ("a", "b"))
            )
        ]

    assert asyncio.run(start()) == ["a", "b"]
    assert host.living == ["a", "b"]


@pytest.mark.parametrize(
    ("engines", "ranks", "wanted"),
    [(2, 4, [0, 2]), (3, 2, [0, 0, 1]), (1, 4, [0]), (4, 4, [0, 1, 2, 3]), (2, 1, [0, 0])],
)
def test_engines_on_cpu_are_spread_over_the_nodes(
    engines: int, ranks: int, wanted: list[int]
) -> None:
    """Ranks 0, 1 are on one node and 2, 3 on the other: two engines must not share the first."""
    assert [spread(replica, engines, ranks) for replica in range(engines)] == wanted
