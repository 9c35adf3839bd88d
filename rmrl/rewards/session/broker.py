"""Collects the rewards' requests to engines until no reward can add to them, then sends them engine
by engine.

    participants --ask--> pending by engine --ready--> one engine awake --> results

A participant is a reward that is scoring a chunk, with the engines that it may send requests to. An
engine is ready when it has requests and no working participant (rendering, parsing) may still add
to them. Participants that cannot add requests may render meanwhile. An engine is also ready when a
reward that renders a large batch in parts has sent the first part. The broker wakes the ready
engine that is cheapest to reach, unless that engine needs the memory of an awake engine that is
about to receive requests. The awake engine then comes first. An engine serves its requests, and the
requests that follow from its answers, before another engine has its turn. While an engine has no
requests, an engine that fits beside it goes on. So two judges on one checkpoint load it once and
share its batches, and a critique's two engines swap once. Engines in different turns (own devices)
serve side by side.

Requests of several owners may overlap (a server's clients). Each owner's requests then wait for
that owner's participants alone. One call holds a share for every owner, as far as the shares fit.
An engine gives way to another engine whose requests have waited for long
(`rmrl.rewards.session.sharing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rmrl.errors import InfrastructureError
from rmrl.rewards.residency import Engine, Residency
from rmrl.rewards.session.sharing import Owner, Sharing, next_share, oldest_wait


@dataclass(slots=True, eq=False)
class Hold:
    """While the hold is closed, its participants' requests wait and no engine waits for them.
    `Broker.release` opens the hold."""

    closed: bool = True


@dataclass(slots=True, eq=False)
class Participant:
    """A reward at work."""

    engines: tuple[Hashable, ...] | None = None
    """Keys of the engines that the participant may send requests to. None: any."""
    waits: int = 0
    """Above 0 while the participant waits for an engine, a server or another reward."""
    preparing: list[Hashable] = field(default_factory=list)
    """Engines whose requests the participant renders now. Earlier requests may be under way
    already."""
    owner: Owner | None = None
    """None: the one batch of a scorer that has no others beside it."""
    hold: Hold | None = None

    @property
    def held(self) -> bool:
        """Whether the participant's requests wait for `Broker.release`."""
        return self.hold is not None and self.hold.closed

    def may_ask(self, key: Hashable) -> bool:
        """Return whether the participant may send requests to this engine before anything else
        happens."""
        if self.held:
            return False
        if self.preparing:
            return key in self.preparing
        return self.waits == 0 and (self.engines is None or key in self.engines)


@dataclass(slots=True, eq=False)
class _Ask:
    method: str
    requests: list[Any]
    participant: Participant | None
    future: asyncio.Future[list[Any]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    since: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    alone: bool = False
    """The request is sent without other owners' requests, because a call with them failed."""

    @property
    def owner(self) -> Owner | None:
        """Owner of the participant that sent the request."""
        return None if self.participant is None else self.participant.owner

    @property
    def is_due(self) -> bool:
        """Whether somebody waits for the request, and an engine may serve it now."""
        held = self.participant is not None and self.participant.held
        return not self.future.done() and not held

    def settle(self, results: list[Any] | None = None, error: BaseException | None = None) -> None:
        """Set the result. The participant counts as working from here on, though its task has not
        run yet."""
        if self.future.done():
            return
        if self.participant is not None:
            self.participant.waits -= 1
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(results or [])


_current: ContextVar[Participant | None] = ContextVar("participant", default=None)


class Broker:
    """One scorer's side towards its engines. `deadline_s(key)`: seconds that one call to that
    engine may take."""

    def __init__(self, residency: Residency, *, deadline_s: Callable[[Hashable], float]) -> None:
        self._residency = residency
        self._deadline_s = deadline_s
        self.sharing = Sharing()
        self._participants: list[Participant] = []
        self._pending: dict[Hashable, list[_Ask]] = {}
        self._servers: dict[Hashable, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    # --- the rewards' side

    @contextmanager
    def participant(
        self,
        engines: Collection[Hashable] | None = None,
        *,
        owner: Owner | None = None,
        hold: Hold | None = None,
    ) -> Iterator[None]:
        """Count this task, and the tasks that it starts, as one reward at work inside the block.
        `engines`: keys of the engines that the reward may send requests to. None: any. `hold`: the
        reward's requests are rendered and wait until the hold is released."""
        keys = None if engines is None else tuple(engines)
        participant = Participant(keys, owner=owner, hold=hold)
        token = _current.set(participant)
        self._participants.append(participant)
        try:
            yield
        finally:
            _current.reset(token)
            self._participants.remove(participant)
            self._changed.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the participant as waiting inside the block, for something other than a local
        engine. Engines serve other participants' requests meanwhile."""
        participant = _current.get()
        if participant is None:
            yield
            return
        participant.waits += 1
        self._changed.set()
        try:
            yield
        finally:
            participant.waits -= 1

    @contextmanager
    def preparing(self, key: Hashable) -> Iterator[None]:
        """Count the participant as rendering requests for this engine and no other inside the
        block. Requests that it has sent may be served meanwhile."""
        participant = _current.get()
        if participant is None:
            yield
            return
        participant.preparing.append(key)
        self._changed.set()
        try:
            yield
        finally:
            participant.preparing.remove(key)
            self._changed.set()

    async def ask(self, key: Hashable, method: str, requests: Sequence[Any]) -> list[Any]:
        """Return the results for `requests`, in order, from the engine `key`. Raises the engine's
        errors, also from loading."""
        if not requests:
            return []
        ask = _Ask(method, list(requests), _current.get())
        if ask.participant is not None:
            ask.participant.waits += 1
        self._pending.setdefault(key, []).append(ask)
        if ask.is_due:
            self._serve(key)
        self._changed.set()
        try:
            return await ask.future
        except asyncio.CancelledError:
            if ask.participant is not None and ask.future.cancelled():
                ask.participant.waits -= 1
            waiting = self._pending.get(key, [])
            if ask in waiting:
                waiting.remove(ask)
            self._changed.set()
            raise

    def release(self, hold: Hold) -> None:
        """Let engines serve the requests that the hold's participants have sent and will send."""
        hold.closed = False
        for key in list(self._pending):
            if self._asks(key):
                self._serve(key)
        self._changed.set()

    async def idle(self) -> None:
        """Wait until no engine is in use. Results arrive before their engine is put away."""
        await asyncio.gather(*self._servers.values())

    async def close(self) -> None:
        """Stop serving and cancel the calls that still wait."""
        servers = list(self._servers.values())
        for server in servers:
            server.cancel()
        await asyncio.gather(*servers, return_exceptions=True)
        for asks in self._pending.values():
            for ask in asks:
                ask.future.cancel()
        self._pending.clear()

    # --- the engines' side

    def _serve(self, key: Hashable) -> None:
        """Start the server of the engine's turn where none is at work."""
        turn = self._residency.turn_of(key)
        server = self._servers.get(turn)
        if server is None or server.done():
            self._servers[turn] = asyncio.create_task(self._server(turn))

    async def _server(self, turn: Hashable) -> None:
        while (key := await self._next(turn)) is not None:
            await self._serve_engine(key)

    async def _next(self, turn: Hashable) -> Hashable | None:
        """Wait for this turn's next engine to serve. None where no request is left."""
        while True:
            await _woken_tasks_start()
            pending = self._requested(turn)
            if not pending:
                return None
            overdue = self._overdue(turn)
            if overdue is not None:
                return overdue
            awake_to_come = False
            for key in self._residency.order(self._coming(turn)):
                displaces = awake_to_come and self._residency.needs_room(key)
                if key in pending and self._is_ready(key) and not displaces:
                    return key
                awake_to_come = awake_to_come or self._residency.is_awake(key)
            await self._change()

    async def _serve_engine(self, key: Hashable) -> None:
        """One engine's turn: serve its pending requests until no reward adds to them."""
        asks: list[_Ask] = []
        try:
            async with self._residency.use(key) as engine:
                turn = self._residency.turn_of(key)
                others = [other for other in self._coming(turn) if other != key]
                if others:
                    self._residency.read_ahead(self._residency.order(others)[0])
                while asks := self._take(key):
                    await self._run(engine, key, asks)
                    if not await self._more(key):
                        break
        except asyncio.CancelledError:
            for ask in (*asks, *self._take_all(key)):
                ask.future.cancel()
            raise
        # An error of loading, waking, sleeping or the call itself goes to the callers.
        except Exception as error:
            failed = [ask for ask in asks if not ask.future.done()]
            if len({ask.owner for ask in failed}) > 1:
                # The fault may be that of one owner's requests.
                self._put_back(key, failed)
            else:
                if not failed or failed[0].owner is None:
                    failed += self._take_all(key)
                for ask in failed:
                    ask.settle(error=error)
            await asyncio.sleep(0)

    def _put_back(self, key: Hashable, failed: Sequence[_Ask]) -> None:
        """Let each request be sent again, without other owners' requests."""
        for ask in failed:
            ask.alone = True
        self._pending[key] = [*failed, *self._pending.get(key, [])]

    async def _run(self, engine: Engine, key: Hashable, asks: Sequence[_Ask]) -> None:
        """Call the engine once per method. A lost or hanging engine raises, because it must not be
        put to sleep in an orderly way."""
        by_method: dict[str, list[_Ask]] = {}
        for ask in asks:
            by_method.setdefault(ask.method, []).append(ask)
        for method, batch in by_method.items():
            requests = list(chain.from_iterable(ask.requests for ask in batch))
            results = await engine.call(method, requests, timeout_s=self._deadline_s(key))
            if len(results) != len(requests):
                raise InfrastructureError(
                    f"the engine returned {len(results)} results of {method} for {len(requests)}"
                    " requests"
                )
            start = 0
            for ask in batch:
                ask.settle(results[start : start + len(ask.requests)])
                start += len(ask.requests)

    def _take_all(self, key: Hashable) -> list[_Ask]:
        asks = self._asks(key)
        pending = self._pending.pop(key, [])
        held = [ask for ask in pending if not (ask.is_due or ask.future.done())]
        if held:
            self._pending[key] = held
        return asks

    def _take(self, key: Hashable) -> list[_Ask]:
        """Take the requests for the next call: all requests, or each owner's share where there are
        owners."""
        asks = self._take_all(key)
        chosen = next_share(asks, self.sharing)
        numbers = set(map(id, chosen))
        left = [ask for ask in asks if id(ask) not in numbers]
        if left:
            self._pending[key] = left + self._pending.get(key, [])
        return chosen

    async def _more(self, key: Hashable) -> bool:
        """Wait until the awake engine's next requests are ready. False where nobody can send it
        any. False also where another engine in its turn is ready and fits beside it: this engine
        has another turn when its requests are there."""
        turn = self._residency.turn_of(key)
        while True:
            await _woken_tasks_start()
            if self._overdue(turn) not in (None, key):
                return False
            if self._is_ready(key):
                return True
            if not self._may_be_asked(key):
                return False
            if self._residency.stays_awake(key):
                for other in self._requested(turn):
                    if self._is_ready(other) and not self._residency.needs_room(other):
                        return False
            await self._change()

    async def _change(self) -> None:
        """Wait until a participant or a request comes or goes. With owners, also until another
        engine's requests may have become overdue."""
        self._changed.clear()
        owned = any(participant.owner is not None for participant in self._participants)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.sharing.check_s if owned else None):
                await self._changed.wait()

    def _overdue(self, turn: Hashable) -> Hashable | None:
        """Return this turn's ready engine whose owned requests have waited longest, among the
        engines that may have the next call. An engine that needs other engines' memory has waited
        `sharing.turn_s`."""
        waits: dict[Hashable, float] = {}
        now = asyncio.get_running_loop().time()
        for key in self._requested(turn):
            wait_s = oldest_wait(self._asks(key), now)
            if wait_s is None or not self._is_ready(key):
                continue
            if wait_s >= self.sharing.turn_s or not self._residency.needs_room(key):
                waits[key] = wait_s
        return max(waits, key=waits.__getitem__, default=None)

    def _asks(self, key: Hashable) -> list[_Ask]:
        """Return the engine's pending requests that may be served and that somebody still waits
        for."""
        return [ask for ask in self._pending.get(key, []) if ask.is_due]

    def _is_ready(self, key: Hashable) -> bool:
        """Return whether the engine's pending requests are to be served now."""
        asks = self._asks(key)
        for ask in asks:
            if ask.participant is not None and key in ask.participant.preparing:
                # A part of a large batch, whose other parts are still rendered.
                return True
        busy = {each.owner for each in self._participants if each.may_ask(key)}
        return any(ask.owner not in busy for ask in asks)

    def _may_be_asked(self, key: Hashable) -> bool:
        return any(participant.may_ask(key) for participant in self._participants)

    def _requested(self, turn: Hashable) -> list[Hashable]:
        """Return this turn's engines with pending requests, the first asked first."""
        keys = [key for key in self._pending if self._asks(key)]
        return [key for key in keys if self._residency.turn_of(key) == turn]

    def _coming(self, turn: Hashable) -> list[Hashable]:
        """Return this turn's engines with pending requests, then the engines that participants name
        and may send requests to soon."""
        keys = self._requested(turn)
        for participant in self._participants:
            for key in participant.engines or ():
                known = key in keys or self._residency.turn_of(key) != turn
                if not known and participant.may_ask(key):
                    keys.append(key)
        return keys


async def _woken_tasks_start() -> None:
    """Give tasks that were just woken a few rounds of the loop to start working."""
    for _ in range(3):
        await asyncio.sleep(0)


def call_deadlines(timeouts: Sequence[tuple[Hashable, float]]) -> Mapping[Hashable, float]:
    """Return the longest deadline among the rewards that share an engine, by the engine's key."""
    longest: dict[Hashable, float] = {}
    for key, seconds in timeouts:
        longest[key] = max(seconds, longest.get(key, 0.0))
    return longest
