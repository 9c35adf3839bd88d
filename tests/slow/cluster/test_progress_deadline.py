"""A deadline that counts from the last progress, with processes that stand still."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmrl.cluster.local import LocalHost
from rmrl.errors import StallError
from tests.cluster.looks import Progress, looks_of, risen_above
from tests.patience import expires

PARTS = "tests.cluster.process_parts"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Progress]:
    return looks_of(monkeypatch, "rmrl.cluster.local")


async def test_a_call_behind_another_one_advances_with_it_and_with_itself(
    tmp_path: Path, looks: list[Progress]
) -> None:
    settings = {"folder": str(tmp_path)}
    process = await LocalHost({}).spawn(f"{PARTS}:GatedSteps", settings, name="steps")
    looks.clear()
    try:
        calls = [process.call("work_at_the_gate", count, timeout_s=60) for count in (4, 3)]
        both = asyncio.gather(*calls)
        while len(looks) < 2:
            await asyncio.sleep(0)
        first, second = looks
        assert (await first(), await second()) == (0, 0)
        count = 0
        for item in range(1, 8):
            (tmp_path / str(item)).touch()
            if item in {4, 7}:  # ends its call, which may come before its report
                continue
            # also with item 5, the second call's own first, behind three or four of the first call
            count = await risen_above(count, second)
            if item < 4:
                assert (await first(), count) == (item, item)
        assert await both == [4, 3]
    finally:
        await process.kill()


async def test_a_process_without_ray_that_stands_still_is_a_stall() -> None:
    process = await LocalHost({}).spawn(f"{PARTS}:Steps", {}, name="steps")
    try:
        assert await process.call("work", 2, 0.1, timeout_s=60) == 2
        with pytest.raises(StallError, match="did not finish within 2 s"):
            await process.call("work", 1, 600.0, timeout_s=expires(2.0))
    finally:
        await process.kill()
