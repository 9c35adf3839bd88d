"""One batch of responses through all components: which component runs when, and on which rows.

    add(rows) -> components that need no device of the policy's start at once (rules, servers,
      engines with a pool of their own). Others render their requests, which wait
    finish()  -> engines on the policy's devices, group judges; ensembles; -> results[c][b]

A component with gates waits for them and scores only the rows where they are open. With
reward.combine=product a costlier component waits for the cheaper ones and skips the rows where they
gave 0. A watcher scores the rows that are drawn for it (`draw`). A row that is not scored has the
status `skipped`. A component that is asked about no row waits for nothing and wakes no engine.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rmrl.errors import RewardFunctionError, StallError
from rmrl.interfaces import ItemScorer
from rmrl.rewards.session.broker import Broker, Hold
from rmrl.rewards.session.draw import ANY_STEP, Draw
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.session.order import Graph
from rmrl.rewards.session.sharing import Owner
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult

_RENDERED_TOGETHER = 256
_OTHER_SOURCE = ScoreResult(
    value=None,
    status="skipped",
    detail="reward.by_source gives this row's data_source other rewards",
)


@dataclass(slots=True)
class _Chunk:
    """Rows that are scored together. `done[c]` resolves to component c's results on these rows."""

    rows: Sequence[ResponseRow]
    positions: Sequence[int]
    done: dict[int, asyncio.Future[list[ScoreResult]]] = field(default_factory=dict)


@dataclass(slots=True)
class BusyTime:
    """Counts the seconds in which at least one call to a component was under way. Overlapping calls
    count once."""

    seconds: float = 0.0
    calls: int = 0
    since: float = 0.0

    def begin(self, now: float) -> None:
        if not self.calls:
            self.since = now
        self.calls += 1

    def end(self, now: float, *, earliest: float) -> None:
        """End a call. Time before `earliest` does not count."""
        self.calls -= 1
        if not self.calls:
            self.seconds += max(0.0, now - max(self.since, earliest))

    def take(self, now: float) -> float:
        """Return the seconds since the last `take`, with the seconds of calls that go on."""
        if self.calls:
            self.seconds += now - self.since
            self.since = now
        seconds = self.seconds
        self.seconds = 0.0
        return seconds


class Session:
    """Scores rows as they come. Use `close` on a session that was not finished: the session then
    sends no more requests."""

    def __init__(
        self,
        specs: Sequence[RewardSpec],
        graph: Graph,
        broker: Broker,
        *,
        kind: Callable[[int], ItemScorer],
        gate_above: float,
        draw: Draw = ANY_STEP,
        owner: Owner | None = None,
        ahead: bool = False,
        times: Mapping[int, BusyTime] | None = None,
    ) -> None:
        """`times`: also counts when the components are at work, together with other sessions.
        `ahead`: rows come over a long time, and requests to engines without room before `finish`
        are rendered meanwhile, in parts."""
        self._specs = specs
        self._graph = graph
        self._broker = broker
        self._kind = kind
        self._gate_above = gate_above
        self._draw = draw
        self._owner = owner
        self._rows: dict[int, ResponseRow] = {}
        self._results: dict[int, dict[int, ScoreResult]] = {c: {} for c in range(len(specs))}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: list[int] = []
        self._ahead = ahead
        self._hold = Hold()
        self._unrendered: list[int] = []
        self._released_at = 0.0
        self._pump: asyncio.Handle | None = None
        self.streamed: dict[int, int] = {}
        """Component -> number of rows it had scored when the last response arrived."""
        self._times_of_all = times or {}
        self.times: dict[int, BusyTime] = defaultdict(BusyTime)
        """Component -> when it was at work, waiting for its engine's turn included."""

    def add(self, position: int, row: ResponseRow) -> None:
        """Add one response. `position` is its place in the batch. Positions must end up as 0 .. B -
        1."""
        self._rows[position] = row
        if self._graph.streamable:
            self._waiting.append(position)
            if self._pump is None:
                self._pump = asyncio.get_running_loop().call_soon(self._start_streaming)
        self._unrendered.append(position)
        if self._ahead and len(self._unrendered) >= _RENDERED_TOGETHER:
            self._render()

    async def finish(self) -> list[list[ScoreResult]]:
        """Return every component's results, [C][B], with the ensembles' parts. Raises the first
        error from any component."""
        for c in self._graph.streamable:
            self.streamed[c] = len(self._results[c])
        try:
            self._start(self._waiting, self._graph.streamable)
            self._waiting = []
            self._render()
            self._released_at = asyncio.get_running_loop().time()
            self._broker.release(self._hold)
            self._start(sorted(self._rows), self._graph.deferred)
            while self._tasks:
                done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
                # An error comes before the tasks that were cancelled because of it.
                for task in sorted(done, key=asyncio.Task.cancelled):
                    task.result()
                    self._tasks.discard(task)
        finally:
            await self.close()
        columns: list[list[ScoreResult]] = []
        for c in range(len(self._specs)):
            results = self._results[c]
            columns.append([results.get(b, _OTHER_SOURCE) for b in range(len(self._rows))])
        return columns

    async def close(self) -> None:
        """Cancel the tasks that still run."""
        if self._pump is not None:
            self._pump.cancel()
        for task in self._tasks:
            task.cancel()
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def rows(self) -> list[ResponseRow]:
        """Return all rows in order."""
        return [row for _, row in sorted(self._rows.items())]

    @property
    def verdicts(self) -> int:
        """Return the number of results so far, over all components."""
        return sum(map(len, self._results.values()))

    @property
    def verdicts_wanted(self) -> int:
        """Return the number of results that the rows so far will have."""
        return len(self._rows) * len(self._specs)

    # --- starting work

    def _start_streaming(self) -> None:
        """Start all rows that arrived in one round of the event loop as one chunk."""
        self._pump = None
        waiting = self._waiting
        self._waiting = []
        self._start(waiting, self._graph.streamable)

    def _render(self) -> None:
        """Start the components whose requests wait for `finish`, on the rows that they lack."""
        rows = self._unrendered
        self._unrendered = []
        self._start(rows, self._graph.ahead)

    def _start(self, positions: Sequence[int], components: Sequence[int]) -> None:
        if not positions or not components:
            return
        loop = asyncio.get_running_loop()
        chunk = _Chunk([self._rows[b] for b in positions], positions)
        chunk.done = {c: loop.create_future() for c in components}
        for c in components:
            task = asyncio.create_task(self._component(c, chunk))
            self._tasks.add(task)
            task.add_done_callback(self._drop_if_fine)

    def _drop_if_fine(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._tasks.discard(task)

    # --- one component on one chunk

    async def _component(self, c: int, chunk: _Chunk) -> None:
        spec = self._specs[c]
        groups = c in self._graph.drawn_in_groups
        undrawn: list[ScoreResult | None] = []
        for row in chunk.rows:
            if self._of_other_source(c, row):
                undrawn.append(_OTHER_SOURCE)
            else:
                undrawn.append(self._draw.skipped(spec.watch, row, whole_groups=groups))
        try:
            if None not in undrawn:
                results = [result for result in undrawn if result is not None]
            elif spec.needs_model:
                engines = [engine.key for engine in spec.engines.values()]
                hold = self._hold if c in self._graph.ahead else None
                with self._broker.participant(engines, owner=self._owner, hold=hold):
                    results = await self._scored(c, chunk, undrawn)
            else:
                results = await self._scored(c, chunk, undrawn)
        except BaseException:
            # Tasks that wait for this one must not wait for ever; the error itself is this task's.
            chunk.done[c].cancel()
            raise
        chunk.done[c].set_result(results)
        self._results[c] |= dict(zip(chunk.positions, results, strict=True))

    async def _scored(
        self, c: int, chunk: _Chunk, undrawn: Sequence[ScoreResult | None]
    ) -> list[ScoreResult]:
        """`undrawn`: None where the component may be asked, else the result that settles the
        row."""
        results = list(undrawn)
        for g in self._graph.gates[c]:
            name = self._specs[g].name
            for i, verdict in enumerate(await self._results_of(g, chunk)):
                if results[i] is not None or self._of_other_source(g, chunk.rows[i]):
                    # A gate that scores only other rows closes nothing here.
                    continue
                if verdict.value is None:
                    results[i] = _skipped(f"its gate '{name}' is closed here ({verdict.status})")
                elif not verdict.value > self._gate_above:
                    results[i] = _skipped(f"its gate '{name}' is closed here ({verdict.value:g})")
        for g in self._graph.cheaper[c]:
            for i, verdict in enumerate(await self._results_of(g, chunk)):
                if results[i] is None and verdict.value == 0:
                    results[i] = _skipped(f"the product is 0 already ('{self._specs[g].name}')")
        items: list[ScoreItem] = [
            score_item(row, self._specs[c])
            for row, result in zip(chunk.rows, results, strict=True)
            if result is None
        ]
        scores = iter(await self._score(c, items))
        return [next(scores) if result is None else result for result in results]

    def _of_other_source(self, c: int, row: ResponseRow) -> bool:
        sources = self._specs[c].sources
        return sources is not None and row.prompt.data_source not in sources

    async def _results_of(self, c: int, chunk: _Chunk) -> list[ScoreResult]:
        results = self._results[c]
        with self._broker.waiting():
            if c in chunk.done:
                return await asyncio.shield(chunk.done[c])
            # It ran while the responses came in.
            while not results.keys() >= set(chunk.positions):
                others = {task for task in self._tasks if not task.done()}
                others -= {asyncio.current_task()}
                if not others:
                    raise asyncio.CancelledError
                await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
        return [results[b] for b in chunk.positions]

    async def _score(self, c: int, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        if not items:
            return []
        spec = self._specs[c]
        clock = asyncio.get_running_loop().time
        started = clock()
        times = [self.times[c]]
        if c in self._times_of_all:
            times.append(self._times_of_all[c])
        for busy in times:
            busy.begin(started)
        try:
            results = await self._kind(c).score(items)
        except StallError as error:
            raise StallError(
                f"reward '{spec.name}' took longer than its {spec.timeout_s:g} s: {error}"
            ) from error
        finally:
            # Requests that wait for the policy to finish cost no time of their own.
            earliest = 0.0
            if c in self._graph.ahead:
                earliest = self._released_at
            now = clock()
            for busy in times:
                busy.end(now, earliest=earliest)
        if len(results) != len(items):
            raise RewardFunctionError(
                f"reward '{spec.name}' returned {len(results)} scores for {len(items)} responses"
            )
        if c in self._graph.ahead:
            started = max(started, self._released_at)
        share = (clock() - started) / len(items)
        timed = list(results)
        for i, result in enumerate(timed):
            if not result.latency_s:
                timed[i] = dataclasses.replace(result, latency_s=share)
        return timed


def _skipped(why: str) -> ScoreResult:
    return ScoreResult(value=None, status="skipped", detail=f"not asked: {why}")
