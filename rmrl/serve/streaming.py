"""Parts of a request as they are scored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from rmrl.api import Summary
from rmrl.serve.scored import Scored
from rmrl.serve.service import Service


async def parts_of(
    service: Service, rows: Sequence[Mapping[str, Any]], *, timeout_s: float | None
) -> AsyncIterator[Scored | Summary]:
    """Yield parts of the rows as soon as they are scored, then the summary over all rows. A
    consumer that stops cancels the rest. Errors as in `Service.score`."""
    ready: asyncio.Queue[Scored | None] = asyncio.Queue()

    async def work() -> Scored:
        try:
            return await service.score(rows, timeout_s=timeout_s, on_part=ready.put)
        finally:
            ready.put_nowait(None)

    scoring = asyncio.create_task(work())
    try:
        while (part := await ready.get()) is not None:
            yield part
        yield (await scoring).summary
    finally:
        scoring.cancel()
        await asyncio.gather(scoring, return_exceptions=True)
