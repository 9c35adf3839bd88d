"""From items to answers in parts: what is rendered is sent while the rest is still being rendered.

Rendering runs on a thread of its own (`RenderThread`), beside the event loop and the engines:
tokenizers leave Python's lock while they work.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.tokenizing import Rendered
from rmrl.rewards.kinds.shared.truncation import Limit, fit_items
from rmrl.types import ScoreItem

Result = TypeVar("Result")
Entry = TypeVar("Entry")

_Jobs: TypeAlias = queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]

PART_ROWS = 256
"""Items rendered and sent together."""


class RenderThread:
    """Runs functions one after another, in the calls' order, on one thread: a tokenizer is
    not made for several. The thread ends with the process, also in the middle of a function."""

    def __init__(self) -> None:
        self._jobs: _Jobs = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def __call__(self, work: Callable[[], Result]) -> Result:
        """The result of `work()`. Raises what it raises."""
        if self._thread is None:
            self._jobs = queue.SimpleQueue()
            jobs = (self._jobs,)
            self._thread = threading.Thread(target=_run, args=jobs, name="render", daemon=True)
            self._thread.start()
        future: Future[Result] = Future()
        self._jobs.put((work, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the thread after what is under way. A later call starts another one. Safe to call
        twice, and where nothing was ever rendered."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None


def _run(jobs: _Jobs) -> None:
    while (job := jobs.get()) is not None:
        work, future = job
        if not future.set_running_or_notify_cancel():
            continue
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """How the inputs of one reward model are made."""

    read: Callable[[Sequence[ScoreItem]], Sequence[Any]]
    """What the model is to read of each item, before it is tokenized."""
    tokenized: Callable[[Sequence[Any], Sequence[ScoreItem]], list[Rendered]]
    at_once: bool
    """`read` takes all items of a batch in one call: a drop-in may compare them."""
    limit: Limit | None
    """None: nothing is cut."""

    def parts(self, items: Sequence[ScoreItem]) -> Iterator[list[Rendered]]:
        """The rendered items, PART_ROWS at a time."""

        def again(_: Sequence[int], shorter: Sequence[ScoreItem]) -> list[Rendered]:
            return self.uncut(shorter)

        reads = self.read(items) if self.at_once else None
        for start in range(0, len(items), PART_ROWS):
            some = items[start : start + PART_ROWS]
            of_part = self.read(some) if reads is None else reads[start : start + PART_ROWS]
            first = self.tokenized(of_part, some)
            yield fit_items(some, again, self.limit, reads=first)

    def uncut(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The items as they are, in one call."""
        return self.tokenized(self.read(items), items)

    def rendered(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """All items, rendered."""
        return list(chain.from_iterable(self.parts(items)))


async def answers_in_parts(
    parts: Iterator[list[Entry]],
    send: Callable[[list[Entry]], Awaitable[Sequence[Result]]],
    *,
    rows: int,
    context: KindContext,
    role: str,
    at_most: int | None = None,
) -> tuple[list[Entry], list[Result]]:
    """Render `parts` (of `rows` in all, PART_ROWS in each) and `send` each to the engine of `role`
    as soon as it is there.

    `at_most`: number of parts that wait for answers at a time, since each holds its requests. The
    next one is rendered when one of them is answered. None: any number.

    Returns the parts and the results of `send`, both joined. Raises what rendering or `send`
    raises. Then nothing more is sent.
    """
    entries: list[Entry] = []
    sent: list[asyncio.Task[Sequence[Result]]] = []
    results: list[Result] = []
    step = partial(next, parts)
    try:
        with context.preparing(role):
            for _ in range(PART_ROWS, rows, PART_ROWS):
                part = await context.render(step)
                _raise_failed(sent)
                entries += part
                sent.append(asyncio.ensure_future(send(part)))
                waiting = [answer for answer in sent if not answer.done()]
                if at_most is not None and len(waiting) >= at_most:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    _raise_failed(sent)
            last = await context.render(step)
            _raise_failed(sent)
        entries += last
        sent.append(asyncio.ensure_future(send(last)))
        for answer in sent:
            results += await answer
    except BaseException:
        for answer in sent:
            answer.cancel()
        await asyncio.gather(*sent, return_exceptions=True)
        raise
    return entries, results


def _raise_failed(sent: Sequence[asyncio.Task[Any]]) -> None:
    """Raise the error of the first part that has failed, if any has."""
    for answer in sent:
        if answer.done():
            answer.result()
