"""The one way from responses to rewards, alike in training, offline scoring and checks.

rows --> session --> rules (killable workers), servers, engines (one awake at a time per device) -->
Scores --> combine --> RewardBatch
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np

from rmrl.config.schema import RewardConfig
from rmrl.errors import RewardError
from rmrl.rewards.cache.calls import CachedCalls, CacheStats
from rmrl.rewards.cache.keys import scorer_key
from rmrl.rewards.cache.store import CacheStore
from rmrl.rewards.combine import combine, takes_part, weights_matrix
from rmrl.rewards.combine.schedules import schedules_of
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.context import Calls, Counts, KindContext
from rmrl.rewards.kinds.ensemble import ensemble_results
from rmrl.rewards.remote import WIRES
from rmrl.rewards.residency import Residency
from rmrl.rewards.rules.pool import RulePool
from rmrl.rewards.scoring.broker import Broker, call_deadlines
from rmrl.rewards.scoring.items import ResponseRow, score_item
from rmrl.rewards.scoring.missing import check_missing
from rmrl.rewards.scoring.order import graph_of
from rmrl.rewards.scoring.rows import Rows
from rmrl.rewards.scoring.session import Session
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.rewards.transforms import Chain, chain_of
from rmrl.types import Metrics, RewardBatch, RewardKind, ScoreItem, ScoreResult, Scores


class Scorer:
    """Scores responses with every component and combines them. Use `close` when done: it ends
    engines, workers and connections."""

    def __init__(
        self,
        specs: Sequence[RewardSpec],
        settings: RewardConfig,
        *,
        residency: Residency,
        tokenizer: Callable[[str], Any],
        rule_workers: int = 2,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`specs`: components and the parts of ensembles; `tokenizer` loads (and caches) the
        tokenizer of a checkpoint."""
        self.parts = tuple(specs)
        self.specs = tuple(spec for spec in specs if not spec.part_of)
        self._settings = settings
        self.residency = residency
        self._graph = graph_of(
            self.parts, how=settings.combine, scheduled=settings.weight_schedules
        )
        self._chains = [
            chain_of(spec.transforms, where=f"reward '{spec.name}' transform")
            for spec in self.parts
        ]
        self._schedules = schedules_of(
            settings.weight_schedules, [spec.name for spec in self.specs]
        )
        self._pool = RulePool(rule_workers)
        self._tokenizer = tokenizer
        self._counts = [Counts() for _ in self.parts]
        self._store = _open_store(settings, notice)
        self._servers: dict[Hashable, Any] = {}
        self._broker = Broker(residency, deadline_s=_deadlines(self.parts).__getitem__)
        self._calls = [self._calls_of(c) for c in range(len(self.parts))]
        self._sessions: set[Session] = set()

    def open(self) -> Session:
        """A session to add responses to as they are finished; hand it to `finish` when all are
        in."""
        session = Session(
            self.parts,
            self._graph,
            self._broker,
            kind=self.kind,
            gate_above=self._settings.gate_above,
        )
        self._sessions.add(session)
        return session

    async def finish(
        self, session: Session, *, step: int = 0, learn: bool = True, within_budget: bool = True
    ) -> RewardBatch:
        """The rewards of all rows of a session. `step` picks the weights of schedules; without
        `learn` running statistics stay.

        Without `within_budget` any number of verdicts may be missing: whoever scores a whole file
        judges that at its end. Raises RewardFunctionError (a drop-in raised or miscounted),
        MissingVerdictsError, StallError, EngineLostError.
        """
        try:
            results = await session.finish()
            await self._broker.idle()
            await self.residency.settle()
        except BaseException:
            await self._broker.close()  # an engine that is still busy for nobody is ended
            raise
        finally:
            self._sessions.discard(session)
        batch = self._combined(
            results, session.rows, step, learn=learn, within_budget=within_budget
        )
        count = max(len(session.rows), 1)
        streamed = {
            f"perf/streamed/{self.parts[c].name}": rows / count
            for c, rows in session.streamed.items()
        }
        return dataclasses.replace(batch, metrics=batch.metrics | streamed | self._take_metrics())

    async def score(
        self,
        rows: Sequence[ResponseRow],
        *,
        step: int = 0,
        learn: bool = True,
        within_budget: bool = True,
    ) -> RewardBatch:
        """The rewards of rows that are all there; errors as in `finish`."""
        session = self.open()
        for position, row in enumerate(rows):
            session.add(position, row)
        return await self.finish(session, step=step, learn=learn, within_budget=within_budget)

    @asynccontextmanager
    async def streaming(self) -> AsyncIterator[Session]:
        """A session for the time of the block; what it started is cancelled when the block
        raises."""
        session = self.open()
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
        if self._store is not None:
            self._store.close()

    async def results_of(self, c: int, rows: Sequence[ResponseRow]) -> list[ScoreResult]:
        """Entry c of `parts` alone on `rows`: no gates, no combination, nothing learnt. Errors as
        in `finish`."""
        with self._broker.participant():
            results = await self.kind(c).score([score_item(row, self.parts[c]) for row in rows])
        await self._broker.idle()
        self._take_metrics()  # ends the batch: the next call's equal requests are computed anew
        return results

    def items_for(self, c: int, rows: Sequence[ResponseRow]) -> list[ScoreItem]:
        """What component c is told of the rows."""
        return [score_item(row, self.specs[c]) for row in rows]

    def kind(self, c: int) -> RewardKind:
        """The scoring object of entry c of `parts`."""
        context = KindContext(
            pool=self._pool, tokenizer=self._tokenizer, calls=self._calls[c], counts=self._counts[c]
        )
        return REWARD_KINDS[self.parts[c].kind].from_spec(self.parts[c], context)

    def state_dict(self) -> dict[str, Any]:
        """Running statistics of the transforms, by component; JSON."""
        return {
            spec.name: chain.state_dict()
            for spec, chain in zip(self.parts, self._chains, strict=True)
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Components that `state` does not know start from nothing."""
        for spec, chain in zip(self.parts, self._chains, strict=True):
            if spec.name in state:
                chain.load_state_dict(state[spec.name])

    # --- set-up

    def _calls_of(self, c: int) -> dict[str, Calls]:
        spec = self.parts[c]
        code_hash = spec.dropin.code_hash if spec.dropin else ""
        ways: dict[str, tuple[Any, Any]] = {
            role: (partial(self._broker.ask, engine.key), engine)
            for role, engine in spec.engines.items()
        }
        if spec.remote is not None:
            ways["remote"] = (self._remote(spec), spec.remote)
        return {
            role: CachedCalls(
                run,
                store=self._store,
                scorer_key=(
                    scorer_key(asked, code_hash=code_hash) if self._store is not None else ""
                ),
                label=spec.name,
                sampled=self._settings.cache.sampled,
                waiting=self._broker.waiting,
            )
            for role, (run, asked) in ways.items()
        }

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
        results: list[list[ScoreResult]],
        rows: Sequence[ResponseRow],
        step: int,
        *,
        learn: bool,
        within_budget: bool,
    ) -> RewardBatch:
        about = Rows.of(self.items_for(0, rows)) if self.specs else Rows.of([])
        for c, members in self._graph.members.items():
            results[c] = self._ensemble(c, members, results, about, learn=learn)
        shown = [c for c, spec in enumerate(self.parts) if not spec.part_of]
        scores = Scores(
            names=tuple(s.name for s in self.specs), results=tuple(tuple(results[c]) for c in shown)
        )
        weights_BC = weights_matrix(self.specs, about, step=step, schedules=self._schedules)
        members = [spec for spec in self.parts if spec.part_of]
        takes_part_BC = takes_part(self.specs, weights_BC, settings=self._settings, parts=members)
        chains = [self._chains[c] for c in shown]
        try:
            if within_budget:
                allowed = self._settings.max_missing
                by_cause = self._settings.max_missing_by_cause
                check_missing(
                    scores, allowed=allowed, by_cause=by_cause, takes_part_BC=takes_part_BC
                )
            return combine(
                scores,
                self.specs,
                about,
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
        about: Rows,
        *,
        learn: bool,
    ) -> list[ScoreResult]:
        # A member that is a component of its own as well learns there, once.
        learns = [learn and bool(self.parts[m].part_of) for m in members]
        columns = [
            _transformed(self._chains[m], results[m], about, learn=each)
            for m, each in zip(members, learns, strict=True)
        ]
        return ensemble_results(
            [results[m] for m in members],
            np.asarray(columns),
            self.parts[c].options,
            self.parts[c].name,
        )

    def _take_metrics(self) -> Metrics:
        metrics = self.residency.take_metrics()
        for spec, counts, ways in zip(self.parts, self._counts, self._calls, strict=True):
            for name, (hits, total) in counts.found.items():
                if total:
                    metrics[f"score/{spec.name}/{name}"] = hits / total
                else:
                    metrics[f"score/{spec.name}/{name}"] = 0.0
            counts.found.clear()
            stats = [way.take_stats() for way in ways.values() if isinstance(way, CachedCalls)]
            metrics |= _cache_metrics(spec.name, stats)
        return metrics


def _transformed(
    chain: Chain, results: Sequence[ScoreResult], about: Rows, *, learn: bool
) -> np.ndarray:
    values_B = np.asarray(
        [np.nan if r.value is None else r.value for r in results], dtype=np.float64
    )
    return chain.apply(values_B, about, ~np.isnan(values_B), learn=learn)


def _cache_metrics(name: str, stats: Sequence[CacheStats]) -> Metrics:
    """Shares of the requests that were not sent: equal to another of the batch, or known from
    before."""
    requests = sum(s.requests for s in stats)
    if not requests:
        return {}
    return {
        f"score/{name}/duplicates": sum(s.duplicates for s in stats) / requests,
        f"score/{name}/cache_hits": sum(s.hits for s in stats) / requests,
    }


def _open_store(settings: RewardConfig, notice: Callable[[str], None]) -> CacheStore | None:
    cache = settings.cache
    if cache.path is None:
        return None
    return CacheStore(cache.path, max_bytes=int(cache.max_gb * 2**30), notice=notice)


def _deadlines(specs: Sequence[RewardSpec]) -> Mapping[Hashable, float]:
    return call_deadlines(
        [(engine.key, spec.timeout_s) for spec in specs for engine in spec.engines.values()]
    )
