"""How far the calls of a process are, as their caller sees it, without any deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.patience import PATIENCE_S

Progress = Callable[[], Awaitable[int]]


def looks_of(monkeypatch: pytest.MonkeyPatch, module: str) -> list[Progress]:
    """How far each call is that `module` makes from now on, in the order of the calls, which have
    no deadline then."""
    looks: list[Progress] = []

    async def without_deadline(
        call: Awaitable[object], *, timeout_s: float, progress: Progress
    ) -> object:
        del timeout_s
        looks.append(progress)
        return await call

    monkeypatch.setattr(f"{module}.with_progress", without_deadline)
    return looks


async def risen_above(count: int, look: Progress) -> int:
    """The count of a call as soon as it is larger."""
    async with asyncio.timeout(PATIENCE_S):
        while (now := await look()) <= count:
            await asyncio.sleep(0.01)
    return now
