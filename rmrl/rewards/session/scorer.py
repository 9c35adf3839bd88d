"""The one path from responses to rewards, the same in training, offline scoring and checks.

rows --> session --> rules (killable workers), servers, engines (one awake at a time per device) -->
Scores --> combine --> RewardBatch
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any

import numpy as np

from rmrl.config.schema import RewardConfig
from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.interfaces import ItemScorer
from rmrl.rewards.cache.calls import CachedCalls
from rmrl.rewards.cache.keys import scorer_key
from rmrl.rewards.cache.store import CacheStore
from rmrl.rewards.combine import combine, takes_part, weights_matrix
from rmrl.rewards.combine.schedules import schedules_of
from rmrl.rewards.combine.table import COMBINERS
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.ensemble.reward import ensemble_results
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.shared.context import Calls, Counts, KindContext
from rmrl.rewards.kinds.shared.inputs import RenderThread
from rmrl.rewards.remote import WIRES
from rmrl.rewards.residency import Residency
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.session.broker import Broker, call_deadlines
from rmrl.rewards.session.draw import ANY_STEP, Draw
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.session.joint import Joint, Results
from rmrl.rewards.session.missing import check_missing
from rmrl.rewards.session.order import graph_of
from rmrl.rewards.session.session import BusyTime, Session
from rmrl.rewards.session.sharing import Owner
from rmrl.rewards.session.turns import reader_of
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms import Chain, chain_of
from rmrl.types import Metrics, RewardBatch, ScoreResult, Scores


class Scorer:
    """Scores responses with every component and combines the scores. `close` ends engines, workers
    and connections."""

    def __init__(
        self,
        specs: Sequence[RewardSpec],
        settings: RewardConfig,
        *,
        residency: Residency,
        tokenizer: Callable[[str], Any],
        rule_workers: int = 2,
    ) -> None:
        """`specs`: components and the parts of ensembles. `tokenizer` loads (and caches) a
        checkpoint's tokenizer."""
        self.parts = tuple(specs)
        self.specs = tuple(spec for spec in specs if not spec.part_of)
        self._settings = settings
        self.residency = residency
        self._graph = graph_of(
            self.parts, how=settings.combine, scheduled=settings.weight_schedules
        )
        self._chains: list[Chain] = []
        for spec in self.parts:
            where = f"reward '{spec.name}' transform"
            self._chains.append(chain_of(spec.transforms, where=where))
        self._schedules = schedules_of(
            settings.weight_schedules, [spec.name for spec in self.specs]
        )
        self._pool = RulePool(rule_workers)
        self._tokenizer = tokenizer
        self._render = RenderThread()
        self._counts = [Counts() for _ in self.parts]
        self._store: CacheStore | None = None
        cache = settings.cache
        if cache.path is not None:
            max_bytes = int(cache.max_gb * 2**30)
            self._store = CacheStore(cache.path, max_bytes=max_bytes)
        self._servers: dict[Hashable, Any] = {}
        timeouts: list[tuple[Hashable, float]] = []
        for spec in self.parts:
            for engine in spec.engines.values():
                timeouts.append((engine.key, spec.timeout_s))
        deadlines = call_deadlines(timeouts)
        self._broker = Broker(residency, deadline_s=deadlines.__getitem__)
        self._calls = [self._calls_of(c) for c in range(len(self.parts))]
        self._sessions: set[Session] = set()
        self._times = {c: BusyTime() for c in range(len(self.parts))}
        self._kinds: dict[int, ItemScorer] = {}
        self._joint = Joint(self._combined_beside)

    def open(
        self, *, owner: Owner | None = None, ahead: bool = False, draw: Draw = ANY_STEP
    ) -> Session:
        """Open a session that takes responses as they are finished. Pass the session to `finish`
        when it has them all. With an `owner`, other sessions may be open beside it, and you pass it
        to `finish_beside`. `ahead`: as in `Session`. `draw`: the rows about which watchers are
        asked."""
        session = Session(
            self.parts,
            self._graph,
            self._broker,
            kind=self.kind,
            gate_above=self._settings.gate_above,
            draw=draw,
            owner=owner,
            ahead=ahead,
            times=self._times,
        )
        self._sessions.add(session)
        return session

    async def finish(
        self, session: Session, *, step: int = 0, learn: bool = True, within_budget: bool = True
    ) -> RewardBatch:
        """Return the rewards for all rows in a session. `step` picks the weights from schedules.
        Without `learn`, running statistics do not change.

        Without `within_budget` any number of verdicts may be missing: offline scoring checks the
        budget at the end of the file. Raises RewardFunctionError (a drop-in raised or miscounted),
        MissingVerdictsError, StallError, EngineLostError.
        """
        try:
            results = await session.finish()
            await self._broker.idle()
            await self.residency.settle()
        except BaseException:
            # Ends an engine whose results are no longer needed.
            await self._broker.close()
            raise
        finally:
            self._sessions.discard(session)
        facts = self._facts(session)
        batch = self._combined(results, facts, step, learn=learn, within_budget=within_budget)
        count = max(len(session.rows), 1)
        streamed: Metrics = {
            f"perf/streamed/{self.parts[c].name}": scored / count
            for c, scored in session.streamed.items()
        }
        times: Metrics = {
            f"time/score/{self.parts[c].name}": busy.seconds for c, busy in session.times.items()
        }
        metrics = batch.metrics | streamed | times | self.take_metrics()
        return dataclasses.replace(batch, metrics=metrics)

    async def finish_beside(
        self, session: Session, *, state: Mapping[str, Any]
    ) -> tuple[RewardBatch, dict[str, Any]]:
        """Return the rewards for a session with an owner, and the running statistics after the
        session.

        `state`: the owner's own statistics before the session. Other sessions go on. An error or a
        cancellation in this session ends none of their calls, and engines stay as they are
        (`settle`). The batch has no scorer metrics (`take_metrics`). Any number of verdicts may be
        missing. Errors as in `finish`.
        """
        try:
            results = await session.finish()
        finally:
            self._sessions.discard(session)
        # No other session may combine its scores between these lines.
        self.load_state_dict(state)
        return self._combined_beside(results, self._facts(session)), self.state_dict()

    async def finish_jointly(self, session: Session) -> RewardBatch:
        """Return the rewards for a session with an owner, as `finish_beside` does, where no score
        depends on the batch (`depends_on_batch`). Sessions that end at the same time are combined
        at once, which costs less for small ones."""
        try:
            results = await session.finish()
        finally:
            self._sessions.discard(session)
        facts = self._facts(session)
        if self._settings.combine in tuple(COMBINERS):
            return await self._joint.combine(results, facts)
        # A combiner of the user's own may look at all rows that it gets.
        return self._combined_beside(results, facts)

    def _facts(self, session: Session) -> Rows:
        return Rows.of(session.rows if self.specs else ())

    def _combined_beside(self, results: Results, facts: Rows) -> RewardBatch:
        return self._combined(results, facts, 0, learn=True, within_budget=False)

    async def settle(self) -> None:
        """Put idle engines away as far as the memory budget asks for it. No session is open."""
        if not self._sessions:
            await self.residency.settle()

    def share_engines(self, *, call_requests: int, turn_s: float) -> None:
        """Set how sessions with owners share the engines."""
        self._broker.sharing.call_requests = call_requests
        self._broker.sharing.turn_s = turn_s

    async def call_engine(
        self, c: int, role: str, method: str, requests: Sequence[Any], *, owner: Owner
    ) -> list[Any]:
        """Send requests to the engine that entry c in `parts` has in a role, and return the
        results. The requests travel beside the sessions' requests. Errors as in `finish`."""
        engine = self.parts[c].engines[role]
        with self._broker.participant([engine.key], owner=owner):
            return await self._ask(engine, method, requests)

    async def score(
        self,
        rows: Sequence[ResponseRow],
        *,
        step: int = 0,
        learn: bool = True,
        within_budget: bool = True,
        draw: Draw = ANY_STEP,
    ) -> RewardBatch:
        """Return the rewards for a complete batch. Errors as in `finish`."""
        session = self.open(draw=draw)
        for position, row in enumerate(rows):
            session.add(position, row)
        return await self.finish(session, step=step, learn=learn, within_budget=within_budget)

    def take_seconds(self) -> dict[str, float]:
        """Return, for each entry in `parts`, the seconds since the last call in which it was at
        work or waited for its engine's turn. Sessions that overlap count once."""
        now = asyncio.get_running_loop().time()
        seconds: dict[str, float] = {
            self.parts[c].name: busy.take(now) for c, busy in self._times.items()
        }
        return seconds

    def share_done(self) -> float:
        """Return the share of the open sessions' verdicts that have arrived, 0 to 1. Return 0
        without a session."""
        verdicts = 0
        total = 0
        for session in self._sessions:
            verdicts += session.verdicts
            total += session.verdicts_wanted
        return verdicts / total if total else 0.0

    @asynccontextmanager
    async def streaming(self, draw: Draw = ANY_STEP) -> AsyncIterator[Session]:
        """Open a session for the block. An error in the block cancels everything that the session
        started. Engines on the policy's devices are used from `finish` on."""
        session = self.open(ahead=True, draw=draw)
        try:
            yield session
        except BaseException:
            await session.close()
            self._sessions.discard(session)
            raise

    async def close(self) -> None:
        """End engine processes, rule workers and connections."""
        for session in list(self._sessions):
            await session.close()
        await self._broker.close()
        await self.residency.close()
        for server in self._servers.values():
            await server.aclose()
        self._pool.close()
        self._render.close()
        if self._store is not None:
            self._store.close()

    async def results_of(self, c: int, rows: Sequence[ResponseRow]) -> list[ScoreResult]:
        """Score `rows` with entry c in `parts` alone: no gates, no combination, no statistics.
        Errors as in `finish`."""
        with self._broker.participant():
            results = await self.kind(c).score([score_item(row, self.parts[c]) for row in rows])
        await self._broker.idle()
        # ends the batch: equal requests of the next call are computed anew
        self.take_metrics()
        return results

    def tokenizer(self, path: str) -> Any:
        """Return a checkpoint's tokenizer. The first call loads it."""
        return self._tokenizer(path)

    def kind(self, c: int) -> ItemScorer:
        """Return the object that scores items with whole responses for entry c in `parts`. The
        first call makes one kind for all batches."""
        if c not in self._kinds:
            self._kinds[c] = self._made_kind(c)
        return self._kinds[c]

    def _made_kind(self, c: int) -> ItemScorer:
        spec = self.parts[c]

        def preparing(role: str) -> AbstractContextManager[None]:
            # A server is no engine.
            key = spec.engines[role].key if role in spec.engines else None
            return self._broker.preparing(key)

        context = KindContext(
            pool=self._pool,
            tokenizer=self._tokenizer,
            calls=self._calls[c],
            counts=self._counts[c],
            render=self._render,
            preparing=preparing,
        )
        kind = REWARD_KINDS[spec.kind].from_spec(spec, context)
        return reader_of(kind, spec, self._counts[c])

    def state_dict(self) -> dict[str, Any]:
        """Return the transforms' running statistics by component, as JSON."""
        state: dict[str, Any] = {
            spec.name: chain.state_dict()
            for spec, chain in zip(self.parts, self._chains, strict=True)
        }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the statistics. Components that `state` lacks start from nothing."""
        for spec, chain in zip(self.parts, self._chains, strict=True):
            if spec.name in state:
                chain.load_state_dict(state[spec.name])

    # --- set-up

    def _calls_of(self, c: int) -> dict[str, Calls]:
        spec = self.parts[c]
        code_hash = spec.dropin.code_hash if spec.dropin else ""
        ways: dict[str, tuple[Any, Any]] = {
            role: (partial(self._ask, engine), engine) for role, engine in spec.engines.items()
        }
        if spec.remote is not None:
            ways["remote"] = (self._remote(spec), spec.remote)
        calls: dict[str, Calls] = {}
        for role, (run, target) in ways.items():
            key = ""
            # The weights of the policy change from step to step.
            by_policy = isinstance(target, EngineSpec) and target.by_policy
            store = None if by_policy else self._store
            if store is not None:
                key = scorer_key(target, code_hash=code_hash)
            calls[role] = CachedCalls(
                run,
                store=store,
                scorer_key=key,
                label=spec.name,
                sampled=self._settings.cache.sampled,
                waiting=self._broker.waiting,
            )
        return calls

    async def _ask(self, engine: EngineSpec, method: str, requests: Sequence[Any]) -> list[Any]:
        """Return an engine's results. The requests name the reward's adapter there."""
        if engine.adapter:
            requests = [dataclasses.replace(each, adapter=engine.adapter) for each in requests]
        return await self._broker.ask(engine.key, method, requests)

    def _remote(self, spec: RewardSpec) -> Callable[[str, Sequence[Any]], Any]:
        assert spec.remote is not None
        if spec.remote.key not in self._servers:
            self._servers[spec.remote.key] = WIRES[spec.remote.wire](spec.remote)
        server = self._servers[spec.remote.key]

        async def ask(method: str, requests: Sequence[Any]) -> list[Any]:
            with self._broker.waiting():
                return await server.submit(method, requests)

        return ask

    # --- from results to rewards

    def _combined(
        self,
        results: Results,
        facts: Rows,
        step: int,
        *,
        learn: bool,
        within_budget: bool,
    ) -> RewardBatch:
        for c, members in self._graph.members.items():
            results[c] = self._ensemble(c, members, results, facts, learn=learn)
        columns: list[tuple[ScoreResult, ...]] = []
        chains: list[Chain] = []
        for spec, column, chain in zip(self.parts, results, self._chains, strict=True):
            if not spec.part_of:
                columns.append(tuple(column))
                chains.append(chain)
        scores = Scores(names=tuple(spec.name for spec in self.specs), results=tuple(columns))
        weights_BC = weights_matrix(self.specs, facts, step=step, schedules=self._schedules)
        members = [spec for spec in self.parts if spec.part_of]
        try:
            if within_budget:
                check_missing(
                    scores,
                    allowed=self._settings.max_missing,
                    by_cause=self._settings.max_missing_by_cause,
                    takes_part_BC=takes_part(
                        self.specs, weights_BC, settings=self._settings, parts=members
                    ),
                )
            return combine(
                scores,
                self.specs,
                facts,
                settings=self._settings,
                weights_BC=weights_BC,
                transforms=chains,
                parts=members,
                learn=learn,
            )
        except RewardError as error:
            error.scores = scores
            raise

    def _ensemble(
        self,
        c: int,
        members: Sequence[int],
        results: Sequence[Sequence[ScoreResult]],
        facts: Rows,
        *,
        learn: bool,
    ) -> list[ScoreResult]:
        columns: list[np.ndarray] = []
        for m in members:
            # A member that is a component of its own as well learns there, once.
            learns = learn and bool(self.parts[m].part_of)
            # None becomes NaN.
            values_B = np.array([result.value for result in results[m]], dtype=np.float64)
            mask_B = ~np.isnan(values_B)
            columns.append(self._chains[m].apply(values_B, facts, mask_B, learn=learns))
        spec = self.parts[c]
        member_results = [results[m] for m in members]
        return ensemble_results(member_results, np.asarray(columns), spec.options, spec.name)

    def take_metrics(self) -> Metrics:
        """Return counts, shares and engine figures since the last call. The call ends the batch in
        which each equal request is sent once."""
        metrics = self.residency.take_metrics()
        for spec, counts, ways in zip(self.parts, self._counts, self._calls, strict=True):
            for name, (hits, total) in counts.totals.items():
                metrics[f"score/{spec.name}/{name}"] = hits / total if total else 0.0
            counts.totals.clear()
            requests = 0
            duplicates = 0
            hits = 0
            for calls in ways.values():
                if isinstance(calls, CachedCalls):
                    stats = calls.take_stats()
                    requests += stats.requests
                    duplicates += stats.duplicates
                    hits += stats.hits
            # Shares of the requests that were not sent.
            if requests:
                metrics[f"score/{spec.name}/duplicates"] = duplicates / requests
                metrics[f"score/{spec.name}/cache_hits"] = hits / requests
        return metrics
