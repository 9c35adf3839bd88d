"""Sessions that end in the event loop's same turn are combined with one call, which costs little
more than the call for a single session."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmrl.rewards.response_facts import Rows
from rmrl.types import RewardBatch, ScoreResult, Scores

Results = list[list[ScoreResult]]
"""[C][B], with the ensembles' parts."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A session's results, whose rewards are still to come."""

    results: Results
    rows: Rows
    rewards: asyncio.Future[RewardBatch]


class Joint:
    """Combines results where no reward depends on a row in another session."""

    def __init__(self, combined: Callable[[Results, Rows], RewardBatch]) -> None:
        """`combined` combines one batch."""
        self._combined = combined
        self._ended: list[_Ended] = []

    async def combine(self, results: Results, rows: Rows) -> RewardBatch:
        """Return a session's rewards. Raises what `combined` raises for this session alone."""
        loop = asyncio.get_running_loop()
        if not self._ended:
            loop.call_soon(self._combine_ended)
        ended = _Ended(results, rows, loop.create_future())
        self._ended.append(ended)
        return await ended.rewards

    def _combine_ended(self) -> None:
        waiting = [ended for ended in self._ended if not ended.rewards.done()]
        self._ended = []
        try:
            self._settle(waiting)
        except Exception:  # of one of them: the others have their rewards all the same
            for ended in waiting:
                try:
                    self._settle([ended])
                except Exception as error:
                    ended.rewards.set_exception(error)

    def _settle(self, waiting: Sequence[_Ended]) -> None:
        if not waiting:
            return
        columns = zip(*(ended.results for ended in waiting), strict=True)
        results = [[result for column in parts for result in column] for parts in columns]
        whole = self._combined(results, Rows.joined([ended.rows for ended in waiting]))
        parts: list[RewardBatch] = []
        start = 0
        for ended in waiting:
            end = start + len(ended.rows)
            parts.append(_part(whole, slice(start, end)))
            start = end
        for ended, part in zip(waiting, parts, strict=True):
            ended.rewards.set_result(part)


def _part(whole: RewardBatch, rows: slice) -> RewardBatch:
    """Return some rows. `weights_C` stays the whole batch's."""
    scores = whole.scores
    values_BC = whole.columns_BC
    takes_part_BC = whole.takes_part_BC
    return dataclasses.replace(
        whole,
        scores=Scores(names=scores.names, results=tuple(each[rows] for each in scores.results)),
        rewards_B=whole.rewards_B[rows],
        keep_B=whole.keep_B[rows],
        steps=whole.steps[rows],
        teachers=whole.teachers[rows],
        columns_BC=None if values_BC is None else values_BC[rows],
        takes_part_BC=None if takes_part_BC is None else takes_part_BC[rows],
    )
