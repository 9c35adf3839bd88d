"""The reward under audit: texts in, scores out, as training does and within a budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.audit.finding import Example
from rmrl.clock import Clock
from rmrl.digests import digest
from rmrl.offline.check_scoring import CheckedScoring
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.session.scorer import Scorer
from rmrl.types import Prompt, ScoreResult

_BATCH = 64
"""Responses between two looks at the clock, at most."""
_GRACE_S = 5.0
"""Seconds after its budget for which an audit waits for scores that are under way."""


class OverBudgetError(Exception):
    """No seconds or responses are left."""


@dataclass(slots=True)
class Budget:
    """Seconds and responses that an audit may take. The clock is passed in."""

    clock: Clock
    seconds: float
    responses: int | None = None
    scored: int = 0
    started: float | None = None
    """None: engines are starting, which is not counted."""

    def begin(self) -> None:
        """Count the seconds from here on."""
        self.started = self.clock()

    @property
    def spent_s(self) -> float:
        return 0.0 if self.started is None else self.clock() - self.started

    @property
    def left_s(self) -> float:
        return self.seconds - self.spent_s

    @property
    def used_up(self) -> str:
        return f"audit.budget_s={self.seconds:g} is used up"

    def take(self, count: int) -> None:
        """Count responses that are about to be scored. Raises OverBudgetError."""
        if self.left_s <= 0:
            raise OverBudgetError(self.used_up)
        if self.responses is not None and self.scored + count > self.responses:
            raise OverBudgetError(f"audit.max_responses={self.responses} is used up")
        self.scored += count


@dataclass(frozen=True, slots=True)
class Case:
    """One response to score."""

    prompt: Prompt
    text: str

    @property
    def key(self) -> tuple[str, str | None, str]:
        return self.prompt.id, self.prompt.ground_truth, self.text

    def example(self, score: Score, note: str = "") -> Example:
        """Return it with its score, for a report."""
        value = None if math.isnan(score.value) else score.value
        return Example(
            prompt=str(self.prompt.messages[-1]["content"]),
            response=self.text,
            reference=self.prompt.ground_truth or "",
            score=value,
            note=note or score.detail,
            read=score.read,
            wrote=score.wrote,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A reward's verdict on one response. `value` is NaN where there is none."""

    value: float
    status: str = "ok"
    detail: str = ""
    read: str = ""
    wrote: str = ""
    seconds: float = 0.0
    tokens: int = 0
    requests: int = 0


class Subject:
    """Scores responses. A single reward gives its score as it is, several their combined reward."""

    def __init__(self, scorer: Scorer, checked: CheckedScoring, budget: Budget) -> None:
        self.specs = scorer.specs
        self.parts = scorer.parts
        self.budget = budget
        self.whole_groups = checked.whole_groups
        self.batch = _BATCH
        """Responses between two looks at the clock."""
        self.seconds = 0.0
        """Of all scoring."""
        self._scorer = scorer
        self._known: dict[Any, Score] = {}

    @property
    def label(self) -> str:
        """The rewards' names."""
        return " + ".join(spec.name for spec in self.specs)

    def scores(self) -> dict[str, float | None]:
        """Return the scores so far by prompt, reference and response."""
        return {
            digest(list(key)): None if math.isnan(score.value) else score.value
            for key, score in self._known.items()
        }

    def prompts(self) -> dict[str, str]:
        """Return the prompt's id for each key in `scores`."""
        return {digest(list(key)): key[0] for key in self._known}

    async def score(self, cases: Sequence[Case]) -> list[Score]:
        """Return the scores in order. One that is known is not asked for again, unless responses
        are compared with each other."""
        if self.whole_groups:
            return await self.score_afresh(cases)
        new = {case.key: case for case in cases if case.key not in self._known}
        scores = await self.score_afresh(list(new.values()))
        self._known |= dict(zip(new, scores, strict=True))
        return [self._known[case.key] for case in cases]

    async def score_afresh(
        self, cases: Sequence[Case], *, batch: int | None = None, together: bool = True
    ) -> list[Score]:
        """Return the scores in order, all asked for now. Without `together` every response is its
        own group."""
        scores: list[Score] = []
        start = 0
        while start < len(cases):
            stop = min(start + (batch or self.batch), len(cases))
            while together and self.whole_groups and stop < len(cases):
                if cases[stop].prompt.id != cases[stop - 1].prompt.id:
                    break
                stop += 1
            scores += await self._scored(cases[start:stop], together=together)
            start = stop
        return scores

    async def _scored(self, cases: Sequence[Case], *, together: bool) -> list[Score]:
        self.budget.take(len(cases))
        numbers: dict[str, int] = {}
        rows: list[ResponseRow] = []
        for position, case in enumerate(cases):
            group = position
            if together and self.whole_groups:
                group = numbers.setdefault(case.prompt.id, len(numbers))
            rows.append(
                ResponseRow(
                    prompt=case.prompt,
                    text=case.text,
                    group=group,
                    tokens=len(case.text.split()),
                )
            )
        begun = self.budget.clock()
        limit_s = None
        if self.budget.started is not None:
            limit_s = max(self.budget.left_s, 0.0) + _GRACE_S
        try:
            async with asyncio.timeout(limit_s):
                batch = await self._scorer.score(rows, learn=False, within_budget=False)
        except TimeoutError as error:
            raise OverBudgetError(self.budget.used_up) from error
        self.seconds += self.budget.clock() - begun
        results = batch.scores.results
        if len(results) == 1:
            return list(map(_score_of, results[0]))
        combined = zip(batch.rewards_B.tolist(), zip(*results, strict=True), strict=True)
        return [_combined(value, verdicts) for value, verdicts in combined]


def _score_of(result: ScoreResult) -> Score:
    return Score(
        value=float("nan") if result.value is None else result.value,
        status=result.status,
        detail=result.detail,
        read=result.rendered,
        wrote=result.raw_text,
        seconds=result.latency_s,
        tokens=result.tokens_in + result.tokens_out,
        requests=int(bool(result.rendered)),
    )


def _combined(value: float, verdicts: Sequence[ScoreResult]) -> Score:
    """Return the combined reward with the first judge's texts, and the first failure."""
    failed = [verdict for verdict in verdicts if verdict.status not in ("ok", "skipped")]
    judged = [verdict for verdict in verdicts if verdict.rendered]
    first = (failed or judged or list(verdicts))[0]
    status = "ok"
    if failed:
        status = failed[0].status
    return Score(
        value=value,
        status=status,
        detail=first.detail,
        read=first.rendered,
        wrote=first.raw_text,
        seconds=sum(verdict.latency_s for verdict in verdicts),
        tokens=sum(verdict.tokens_in + verdict.tokens_out for verdict in verdicts),
        requests=len(judged),
    )
