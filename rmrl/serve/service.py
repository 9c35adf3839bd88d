"""One scorer for many clients' requests.

Each part of a request is a session of its own. Transforms, groups and the combination see the
part's rows alone, while engine calls hold rows from all sessions. A request starts from fresh
running statistics, so that its scores equal those of `rmrl score` for the same rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import repeat
from typing import Any

from rmrl.api import (
    Client,
    Owner,
    RewardSpec,
    Scorer,
    Session,
    Summary,
    response_rows,
    score_columns,
    token_counter,
)
from rmrl.data.responses import AnsweredRow, ResponseReader, batches, groups_together
from rmrl.serve.bodies import aside
from rmrl.serve.checked import CheckedServer
from rmrl.serve.engines import EngineKeeper
from rmrl.serve.metrics import ServerMetrics
from rmrl.serve.problems import RequestError
from rmrl.serve.queue import RowQueue
from rmrl.serve.request_rows import read_rows
from rmrl.serve.scored import Scored, ScoredRow
from rmrl.together import together
from rmrl.types import RewardBatch

_log = logging.getLogger(__name__)

OnPart = Callable[[Scored], Awaitable[None]]

_LOADING_RETRY_S = 5.0
_PART_OF_A_STREAM = 16
"""Responses in a part that is sent as soon as it is scored."""


class Service:
    """Scores requests between `opened` and its end, and refuses them outside."""

    def __init__(self, checked: CheckedServer) -> None:
        self.checked = checked
        self.settings = checked.settings
        self.queue = RowQueue(checked.settings.max_queue_rows)
        self.metrics = ServerMetrics(queue_rows=lambda: self.queue.rows)
        self.requests = 0
        """Requests that were accepted and whose answers are not written yet."""
        self.names = tuple(spec.name for spec in checked.scoring.specs if not spec.part_of)
        self.draining = False
        self._scorer: Scorer | None = None
        self._keeper: EngineKeeper | None = None
        self._fresh: Mapping[str, Any] = {}
        self._reader: ResponseReader | None = None
        self._counts_tokens = False
        self._counting = asyncio.Semaphore(1)
        """A tokenizer serves one thread at a time."""

    # --- its life

    @asynccontextmanager
    async def opened(
        self, open_scorer: Callable[[], AbstractAsyncContextManager[Scorer]]
    ) -> AsyncIterator[EngineKeeper]:
        """Open the scorer and its engines. Requests are scored inside the block.

        Raises EngineLoadError and other start errors.
        """
        scoring = self.checked.scoring
        count_tokens = await asyncio.to_thread(token_counter, scoring)
        self._reader = ResponseReader(scoring.config.data, count_tokens)
        self._counts_tokens = count_tokens is not None
        async with open_scorer() as scorer:
            scorer.share_engines(call_requests=self.settings.call_rows, turn_s=self.settings.turn_s)
            self._fresh = scorer.state_dict()
            keeper = EngineKeeper(scorer, self.metrics, every_s=self.settings.probe_s)
            self._keeper = keeper
            if self.settings.load_at_start:
                await keeper.load_all()
            self._scorer = scorer
            try:
                yield keeper
            finally:
                self._scorer = None

    def refusal(self) -> RequestError | None:
        """Return why no request is accepted now. None where requests are accepted."""
        if self.draining:
            return RequestError(
                503,
                "the server is shutting down and accepts no more requests",
                retry_after_s=_LOADING_RETRY_S,
            )
        if self._scorer is None:
            return RequestError(
                503,
                "the server is still loading its rewards; GET /readyz answers 200 when it is done",
                retry_after_s=_LOADING_RETRY_S,
            )
        return None

    def not_ready(self) -> list[str]:
        """Return why the server is not ready: it loads or shuts down, or an engine is lost."""
        refusal = self.refusal()
        if refusal is not None:
            return [refusal.message]
        return self.keeper.lost()

    @property
    def keeper(self) -> EngineKeeper:
        """Return the watch over the engines. Raises RequestError 503 before the scorer is open."""
        if self._keeper is None:
            raise RequestError(
                503, "the server is still loading its rewards", retry_after_s=_LOADING_RETRY_S
            )
        return self._keeper

    @property
    def scorer(self) -> Scorer:
        """Return the scorer. Raises RequestError 503 where no request is accepted."""
        scorer = self._scorer
        if scorer is None:
            refusal = self.refusal()
            assert refusal is not None
            raise refusal
        return scorer

    # --- scoring

    async def score(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        timeout_s: float | None = None,
        on_part: OnPart | None = None,
        empty_prompts: bool = False,
    ) -> Scored:
        """Score rows in the form of a `rmrl score` file.

        `timeout_s`: deadline in seconds. None, or more than serve.request_timeout_s:
        serve.request_timeout_s. `on_part` gets every part as soon as it is scored, in any order.
        Parts are small then. `empty_prompts`: a prompt may be without text.

        Raises RequestError: 422 for a bad row, 413 for too many rows, 429 for a full queue, 503
        while loading, 504 past the deadline. Raises also the errors from `Scorer.finish`.
        """
        scorer = self.scorer
        self.check_number(len(rows))
        checked_rows = await self._checked(rows, empty_prompts)
        responses = sum(len(row.texts) for row in checked_rows)
        self.check_number(responses)
        async with self._place(responses, timeout_s):
            return await self._score(scorer, checked_rows, on_part)

    async def _checked(
        self, rows: Sequence[Mapping[str, Any]], empty_prompts: bool
    ) -> list[AnsweredRow]:
        assert self._reader is not None
        if not self._counts_tokens:
            return await aside(read_rows, self._reader, rows, empty_prompts)
        async with self._counting:
            return await asyncio.to_thread(read_rows, self._reader, rows, empty_prompts)

    def check_number(self, responses: int) -> None:
        """Raise RequestError 413 for more responses than may come together. A wire calls this
        before it makes their rows."""
        if responses > self.settings.max_rows:
            raise RequestError(
                413,
                f"the request has {responses} responses, and at most {self.settings.max_rows} may"
                " come together (serve.max_rows); send them in several requests",
                field="rows",
            )

    async def ask(
        self,
        name: str,
        method: str,
        requests: Sequence[Any],
        *,
        role: str = "main",
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Send requests (`rmrl.inference.reward_engine_base`) to a reward's engine and return the
        results. The requests travel beside those for scoring, and each counts as one response.

        `name`: a reward with an engine in that role, as `spec` returns it. Errors as in `score`.
        """
        scorer = self.scorer
        entry = [spec.name for spec in scorer.parts].index(name)
        async with self._place(len(requests), timeout_s):
            return await scorer.call_engine(entry, role, method, requests, owner=Owner())

    def spec(self, name: str) -> RewardSpec:
        """Return a reward, or an ensemble's part, by its name. Raises KeyError."""
        specs = {spec.name: spec for spec in self.checked.scoring.specs}
        return specs[name]

    def tokenizer(self, name: str) -> Any:
        """Return the tokenizer for a reward's model. The first call loads it. Raises RequestError
        503 while loading."""
        return self.scorer.tokenizer(self.spec(name).engines["main"].path)

    @asynccontextmanager
    async def _place(self, responses: int, timeout_s: float | None) -> AsyncIterator[None]:
        """Hold places in the queue for the block, which a deadline ends."""
        seconds = self.settings.request_timeout_s
        if timeout_s is not None:
            seconds = min(seconds, timeout_s)
        deadline = asyncio.timeout(seconds)
        with self.queue.place(responses):
            try:
                async with deadline:
                    yield
            except TimeoutError as error:
                if not deadline.expired():
                    raise
                raise RequestError(
                    504,
                    f"{responses} responses were not scored within {seconds:g} s; the work on them"
                    " was stopped",
                ) from error

    async def _score(
        self, scorer: Scorer, rows: Sequence[AnsweredRow], on_part: OnPart | None
    ) -> Scored:
        client = Client()
        summary = Summary()
        scored: list[ScoredRow] = []

        async def finished(part: Sequence[AnsweredRow], rewards: RewardBatch) -> None:
            summary.add(rewards)
            self.metrics.scored(rewards)
            self.metrics.engines(scorer.take_metrics())
            rows_of_part = self._scored_rows(part, rewards)
            scored.extend(rows_of_part)
            if on_part is not None:
                own = Summary()
                own.add(rewards)
                await on_part(Scored(names=self.names, rows=rows_of_part, summary=own))

        parts = self._parts(rows, streamed=on_part is not None)
        if self.checked.scoring.by_batch:
            state = self._fresh
            for part in parts:
                session = await self._session(scorer, part, client)
                rewards, state = await scorer.finish_beside(session, state=state)
                await finished(part, rewards)
        else:

            async def one(part: Sequence[AnsweredRow]) -> None:
                session = await self._session(scorer, part, client)
                await finished(part, await scorer.finish_jointly(session))

            await together(map(one, parts))
        scored.sort(key=lambda row: row.index)
        return Scored(names=self.names, rows=scored, summary=summary)

    def _parts(self, rows: Sequence[AnsweredRow], *, streamed: bool) -> list[list[AnsweredRow]]:
        """Return the batches as in `rmrl score`, smaller ones for a stream where no score depends
        on them."""
        scoring = self.checked.scoring
        ordered = list(rows)
        if scoring.whole_groups:
            ordered = groups_together(rows)
        size = scoring.config.data.batch_size
        if streamed and not scoring.by_batch:
            size = min(size, _PART_OF_A_STREAM)
        return list(batches(iter(ordered), repeat(size), whole_groups=scoring.whole_groups))

    @staticmethod
    async def _session(scorer: Scorer, part: Sequence[AnsweredRow], client: Client) -> Session:
        session = scorer.open(owner=Owner(client))
        for position, row in enumerate(await aside(response_rows, part)):
            session.add(position, row)
        return session

    def _scored_rows(self, part: Sequence[AnsweredRow], rewards: RewardBatch) -> list[ScoredRow]:
        columns = score_columns(part, rewards, further=self.checked.scoring.config.columns)
        scored: list[ScoredRow] = []
        for i, row in enumerate(part):
            values: dict[str, Any] = {
                name: column[i] if row.several else column[i][0] for name, column in columns.items()
            }
            scored.append(ScoredRow(index=row.number, several=row.several, columns=values))
        return scored
