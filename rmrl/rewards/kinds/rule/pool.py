"""Killable worker processes for rules: a rule that hangs, crashes or leaks costs only its own row.

    submit(calls) -> job -> chunks of calls -> workers (plain subprocesses) -> one message per call
      -> future

A chunk holds calls of several small jobs of one rule, as a server has them from many clients;
those of a rule that has cost a worker go apart, as a call that hangs holds up what is behind it.

One thread of the parent owns all workers. A worker reports when each call starts and ends, so a
call's deadline counts from its start (queueing is never a time-out) and a hang is attributed to
exactly one call. The deadline is one of the worker's own time (`own_time`): a machine that stops or
starves a worker times out no good row. A worker past the deadline is killed and replaced. The rest
of its chunk goes back to the queue. Workers are started with `subprocess`, never forked from the
parent: they inherit neither torch nor Ray state, and `__main__` is not imported again. They die
with the parent. Where a rule costs worker after worker, the next ones are forked by a subprocess
that has imported it (`fork_server`).
"""

from __future__ import annotations

import atexit
import contextlib
import pickle
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from rmrl.errors import EngineLostError, RewardFunctionError
from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule.worker_process import STILL_THERE, Nursery, WorkerProcess
from rmrl.rewards.kinds.shared.own_time import SHORTEST_LOOK_S, OwnTime, family_usage, look_distance
from rmrl.types import ScoreResult

LOAD_TIMEOUT_S = 120.0
"""Deadline of starting a process and importing the function in it, in its own time too; apart from
the calls' deadlines."""
CHUNK_S = 0.05
"""Calls are sent in chunks that take about this long, as measured on the rule's earlier calls, and
that leave calls for the other workers."""
CHUNK_LIMIT = 32
GATHER_S = 0.004
"""Messages are read this seldom while every worker is known to be busy for longer: the thread that
reads them and the one that sends calls share one processor."""
LOSSES_ALLOWED = 1
"""How often a call is retried after its worker died in it, and a job after a worker died importing
its function."""
IDLE_WAIT_S = 60.0
REAP_WAIT_S = 0.2
CLOSE_WAIT_S = 30.0


@dataclass(slots=True, eq=False)
class _Pace:
    """How long the calls of one rule take."""

    call_s: float | None = None
    """Moving average of one call; None before the first."""


@dataclass(slots=True, eq=False)
class _Call:
    job: _Job
    index: int
    payload: bytes
    losses: int = 0


@dataclass(slots=True, eq=False)
class _Job:
    source: FunctionSource
    name: str
    """Reward that its prints belong to."""
    timeout_s: float
    results: list[ScoreResult | None]
    future: Future[list[ScoreResult]] = field(default_factory=Future)
    waiting: deque[_Call] = field(default_factory=deque)
    settled: int = 0
    pace: _Pace = field(default_factory=_Pace)
    load_losses: int = 0
    look_s: float = 0.0
    """Between two looks at a worker that is in one of its calls."""

    def __post_init__(self) -> None:
        self.look_s = look_distance(self.timeout_s)

    def chunk(self, workers: int, others: Iterable[_Job]) -> list[_Call]:
        """Take the next calls, and those of `others` for the rule that wait behind them."""
        jobs: list[_Job] = [self]
        waiting = len(self.waiting)
        for other in others:
            if waiting >= CHUNK_LIMIT * 2 * workers:
                break
            if other.pace is self.pace and not other.future.done():
                jobs.append(other)
                waiting += len(other.waiting)
        size = 1  # until the cost of a call is known
        if self.pace.call_s is not None:
            worth = int(CHUNK_S / max(self.pace.call_s, 1e-6))
            size = max(1, min(CHUNK_LIMIT, worth, waiting // (2 * workers)))
        calls: list[_Call] = []
        for job in jobs:
            while job.waiting and len(calls) < size:
                calls.append(job.waiting.popleft())
        return calls

    def settle(self, call: _Call, result: ScoreResult) -> None:
        """Record one verdict. The last one resolves the future."""
        self.results[call.index] = result
        self.settled += 1
        if self.settled == len(self.results):
            self.resolve()

    def resolve(self, error: BaseException | None = None) -> None:
        """Resolve the future with the results or the error, unless it was cancelled."""
        self.waiting.clear()
        with contextlib.suppress(InvalidStateError):
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result([r for r in self.results if r is not None])


class _Worker(WorkerProcess):
    """A process and its current chunk; `calls[0]` is the running call."""

    def __init__(self, nursery: Nursery | None = None) -> None:
        super().__init__(nursery)
        self.calls: deque[_Call] = deque()
        if nursery is None:
            self.loaded: set[FunctionSource] = set()
        else:
            self.loaded = set(nursery.ready)
        self.loading = False
        self.started = 0.0
        self.look_at = 0.0
        """When to see whether the running call or the import is overdue."""
        self._own: OwnTime | None = None
        """Of the running call or the import; None before the first look at it."""

    def give(self, chunk: list[_Call]) -> None:
        """Hand over calls of one rule. OSError as `send`."""
        self.calls.extend(chunk)
        self.loading = True
        self.started = time.monotonic()
        self.look_at = self.started + look_distance(LOAD_TIMEOUT_S)
        self._own = None
        job = chunk[0].job
        self.hand_over(job.source, job.name, [c.payload for c in chunk])

    def jobs(self) -> list[_Job]:
        """Return those that have calls here."""
        return list(dict.fromkeys(call.job for call in self.calls))

    def busy_for(self) -> float:
        """Seconds that the calls behind the running one will take, as far as known."""
        if len(self.calls) < 2:
            return 0.0
        return (len(self.calls) - 1) * (self.calls[0].job.pace.call_s or 0.0)

    def due(self, now: float) -> bool:
        """Whether it is time for `overdue`."""
        return bool(self.calls) and self.look_at <= now

    def overdue(self, now: float) -> bool:
        """Look at the process: whether its call, or its import, has used up its deadline."""
        job = self.calls[0].job
        allowed_s, distance_s = job.timeout_s, job.look_s
        if self.loading:
            allowed_s, distance_s = LOAD_TIMEOUT_S, look_distance(LOAD_TIMEOUT_S)
        if self._own is None:
            self._own = OwnTime(self.started, distance_s)
        remaining_s = allowed_s - self._own.look(now, family_usage(self.process.pid))
        self.look_at = now + min(distance_s, max(SHORTEST_LOOK_S, remaining_s))
        return remaining_s <= 0

    def begin(self, started: float) -> None:
        """The next call, if there is one, started at `started`."""
        self.loading = False
        self.started = started
        self._own = None
        if self.calls:
            self.look_at = started + self.calls[0].job.look_s

    def answer(self, message: list[Any]) -> None:
        """Act on one message, see `rule.worker`."""
        if message[0] == "start":
            self.loaded.add(self.calls[0].job.source)
            self.begin(message[1])
        elif message[0] == "failed":
            jobs = self.jobs()
            self.calls.clear()
            for job in jobs:
                job.resolve(RewardFunctionError(message[1]))
        else:
            _, status, value, detail, extra, ended = message
            call = self.calls.popleft()
            seconds = ended - self.started
            pace = call.job.pace
            pace.call_s = seconds if pace.call_s is None else 0.5 * (pace.call_s + seconds)
            result = ScoreResult(
                value=value, status=status, detail=detail, extra=extra, latency_s=seconds
            )
            call.job.settle(call, result)
            self.begin(ended)


class RulePool:
    """`workers` processes shared by all rules; started with the first call, and again after
    `close`."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(
                f"A rule pool needs at least 1 worker, not {workers}: set reward.rule_workers=1 or"
                " more."
            )
        self.workers = workers
        self._lock = threading.Lock()
        self._dispatcher: _Dispatcher | None = None

    def submit(
        self,
        source: FunctionSource,
        calls: Sequence[Mapping[str, Any]],
        timeout_s: float,
        name: str = "",
    ) -> Future[list[ScoreResult]]:
        """Run the rule once per entry of `calls` (keyword arguments), each within `timeout_s`
        seconds of its worker's own time. What it prints is that of the reward `name`.

        The future holds one result per call, in order: "ok", "unparseable" (the rule returned
        None), "timeout", "worker_lost" or "user_error". RewardFunctionError in the future: the
        function cannot be imported. Cancelling drops the calls not yet sent.
        """
        job = _Job(source, name, timeout_s, [None] * len(calls))
        job.waiting.extend(_Call(job, i, pickle.dumps(dict(c))) for i, c in enumerate(calls))
        if not calls:
            job.resolve()
            return job.future
        with self._lock:
            if self._dispatcher is None:
                self._dispatcher = _Dispatcher(self.workers)
                atexit.register(self.close)
            self._dispatcher.add(job)
        return job.future

    def process_ids(self) -> list[int]:
        """Return the living workers' process ids; [] before the first call and after `close`."""
        dispatcher = self._dispatcher
        return [] if dispatcher is None else [w.process.pid for w in tuple(dispatcher.workers)]

    def close(self) -> None:
        """End all workers; calls still open get EngineLostError."""
        with self._lock:
            dispatcher = self._dispatcher
            self._dispatcher = None
        if dispatcher is not None:
            atexit.unregister(self.close)
            dispatcher.close()

    def __enter__(self) -> RulePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Dispatcher:
    """The thread that owns the workers. Only `add` and `close` are called from others."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.workers: list[_Worker] = []
        self._inbox: deque[_Job] = deque()
        self._ready: deque[_Job] = deque()
        """Jobs with waiting calls; served in turn, so that a slow rule does not hold up a fast
        one."""
        self._dying: list[_Worker] = []
        """Killed and not yet gone."""
        self._lost: set[FunctionSource] = set()
        """Rules that have cost a worker."""
        self._paces: dict[FunctionSource, _Pace] = {}
        self._rung = False
        """Whether the thread will look at the inbox anyway."""
        self._nursery: Nursery | None = None
        self._without_nursery = False
        self._closing = False
        self._shutting = False
        self._selector = selectors.DefaultSelector()
        self._bell, self._heard = socket.socketpair()
        self._bell.setblocking(False)
        self._heard.setblocking(False)
        self._selector.register(self._heard, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="rmrl-rule-pool", daemon=True)
        self._thread.start()

    def add(self, job: _Job) -> None:
        """Queue a job."""
        self._inbox.append(job)
        self._ring()
        if self._shutting:  # appended too late for `_shut` to see it
            job.resolve(EngineLostError("The rule pool has stopped; start the run again."))

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._closing = True
        self._ring()
        self._thread.join(CLOSE_WAIT_S)

    def _ring(self) -> None:
        if self._rung:
            return
        self._rung = True
        with contextlib.suppress(OSError):  # full: it rings already
            self._bell.send(b"!")

    def _run(self) -> None:
        reason: BaseException = EngineLostError("The rule pool was closed while calls were open.")
        try:
            while not self._closing:
                self._assign()
                self._listen()
                now = time.monotonic()
                for worker in tuple(self.workers):
                    if worker.due(now):
                        # An answer that is already written counts, however late it is read.
                        self._hear(worker)
                    if worker in self.workers and worker.due(now) and worker.overdue(now):
                        self._lose(worker, overdue=not worker.ended())
                self._dying = [worker for worker in self._dying if not worker.reaped()]
        except Exception as error:  # no call may wait for ever on a dead thread
            reason = EngineLostError(f"The rule pool stopped: {type(error).__name__}: {error}.")
            raise
        finally:
            self._shut(reason)

    def _assign(self) -> None:
        """Give waiting calls to idle workers, starting workers up to the limit."""
        self._rung = False  # before the look: what comes behind it rings again
        while self._inbox:
            job = self._inbox.popleft()
            job.pace = self._paces.setdefault(job.source, job.pace)
            self._ready.append(job)
        while self._ready:
            worker = next((w for w in self.workers if not w.calls), None)
            if worker is None and len(self.workers) == self.limit:
                return
            job = self._ready.popleft()
            if job.future.done() or not job.waiting:
                continue
            worker = worker or self._start(job.source)
            chunk = job.chunk(self.limit, () if job.source in self._lost else self._ready)
            if job.waiting:
                self._ready.append(job)
            try:
                worker.give(chunk)
            except OSError:
                self._lose(worker, overdue=False)

    def _start(self, source: FunctionSource) -> _Worker:
        nursery = self._nursery
        try:
            imported = nursery is not None and nursery.has(source)
            worker = _Worker(nursery if imported else None)
        except OSError:
            if nursery is None:
                raise
            self._end_nursery()
            worker = _Worker()
        self.workers.append(worker)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        return worker

    def _listen(self) -> None:
        """Wait for messages until the next look at a worker, and act on them."""
        if len(self.workers) == self.limit:
            idle_in = min(worker.busy_for() for worker in self.workers)
            if idle_in > GATHER_S:
                time.sleep(GATHER_S)
        now = time.monotonic()
        looks = [worker.look_at for worker in self.workers if worker.calls]
        wait = min(looks, default=now + IDLE_WAIT_S) - now
        if self._dying:
            wait = min(wait, REAP_WAIT_S)
        for key, _ in self._selector.select(max(wait, 0.0)):
            if key.data is None:
                self._heard.recv(4096)  # unread bytes wake the thread again
            elif isinstance(key.data, Nursery):
                try:
                    key.data.receive()
                except OSError:
                    self._end_nursery()
            else:
                self._hear(key.data)

    def _hear(self, worker: _Worker) -> None:
        messages, is_open = worker.receive()
        for message in messages:
            worker.answer(message)
        if not is_open:
            self._lose(worker, overdue=False)

    def _raise_spares(self, source: FunctionSource) -> None:
        """From the second worker that a rule costs, the next ones are forked from a process that
        has imported it."""
        again = source in self._lost
        self._lost.add(source)
        if not again or self._without_nursery:
            return
        try:
            if self._nursery is None:
                self._nursery = Nursery()
                self._selector.register(self._nursery.channel, selectors.EVENT_READ, self._nursery)
            self._nursery.request(source)
        except OSError:
            self._end_nursery()

    def _end_nursery(self) -> None:
        """Stop using the nursery: from here on workers are started afresh, as they are without
        losses."""
        nursery = self._nursery
        self._nursery = None
        self._without_nursery = True
        if nursery is not None:
            self._selector.unregister(nursery.channel)
            nursery.kill()

    def _lose(self, worker: _Worker, *, overdue: bool) -> None:
        """Kill and forget a worker; settle its running call, put the others back."""
        self.workers.remove(worker)
        self._selector.unregister(worker.channel)
        hung = overdue and not worker.loading
        how = worker.end() if hung else worker.kill()
        if how == STILL_THERE:
            self._dying.append(worker)
        if not worker.calls:
            return
        job = worker.calls[0].job
        if not worker.loading:
            self._raise_spares(job.source)
        if worker.loading and job.source in worker.loaded and not overdue:
            # It died between two chunks, e.g. killed for memory: not by the import, not by a call.
            pass
        elif worker.loading and overdue:
            self._lose_loading(worker, f"took more than {LOAD_TIMEOUT_S:g} s", final=True)
        elif worker.loading:
            self._lose_loading(worker, how, final=False)
        elif overdue:
            detail = f"{job.source} ran for more than {job.timeout_s:g} s and was killed"
            job.settle(worker.calls.popleft(), _missing("timeout", detail, job.timeout_s))
        elif worker.calls[0].losses >= LOSSES_ALLOWED:
            detail = f"{job.source}: its process {how}, twice"
            job.settle(worker.calls.popleft(), _missing("worker_lost", detail, 0.0))
        else:
            worker.calls[0].losses += 1
        for call in reversed(worker.calls):
            if call.job.future.done():
                continue
            if call.job not in self._ready:
                self._ready.appendleft(call.job)
            call.job.waiting.appendleft(call)

    def _lose_loading(self, worker: _Worker, how: str, *, final: bool) -> None:
        for job in worker.jobs():
            job.load_losses += 1
            if final or job.load_losses > LOSSES_ALLOWED:
                job.resolve(
                    RewardFunctionError(
                        f"Importing {job.source} in a rule worker: the process {how}. Does the file"
                        " import alone?"
                    )
                )

    def _shut(self, reason: BaseException) -> None:
        self._shutting = True
        jobs = [*self._inbox, *self._ready]
        for worker in self.workers:
            jobs.extend(worker.jobs())
            worker.kill()
        for worker in self._dying:
            worker.finish()
        self.workers.clear()
        if self._nursery is not None:
            self._nursery.kill()
        self._selector.close()
        self._bell.close()
        self._heard.close()
        for job in dict.fromkeys(jobs):
            job.resolve(reason)


def _missing(status: Any, detail: str, seconds: float) -> ScoreResult:
    return ScoreResult(value=None, status=status, detail=detail, latency_s=seconds)
