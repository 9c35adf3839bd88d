"""Single responses gathered into batches, for trainers that call their reward function once per
response from many threads or tasks."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from rmrl.adapters.shared import Config, Row, SharedRewards, shared_rewards
from rmrl.api import REWARD_KINDS, compared
from rmrl.errors import ConfigError, DataError, InfrastructureError, RewardError

_log = logging.getLogger(__name__)

WAIT_S = 0.05
"""A batch is scored when this long no further response came."""
OLDEST_S = 1.0
"""A batch is scored when its first response has waited this long, whatever else comes."""
MOST_ROWS = 512
"""A batch's greatest number of responses."""
REST_AFTER_S = 2.0
"""Engines are put away when this long no response came."""
LOOK_EVERY_S = 5.0
"""Callers that wait for a score look this often whether the thread that scores lives."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One response's scores."""

    row: Row
    """The row with the columns of `rmrl score`."""
    components: tuple[str, ...]
    missing_reward: float | None = None
    """Number of a response without a reward. None: there is none, and that is an error."""

    @property
    def reward(self) -> float:
        """The combined reward. Raises RewardError where the response has none and no number was
        given for that."""
        reward = self.row["reward"]
        if reward is not None:
            return float(reward)
        if self.missing_reward is not None:
            return self.missing_reward
        reasons: list[str] = []
        for name in self.components:
            status = self.row[f"status_{name}"]
            if status not in ("ok", "skipped"):
                reasons.append(f"'{name}' {status}: {self.row[f'detail_{name}']}")
        raise RewardError(
            f"a response has no reward ({'; '.join(reasons) or 'no component applies to it'}), and"
            " this trainer cannot leave it out; type on_missing: {impute: <number>} or renormalize"
            " for the component, or missing_reward=<number>"
        )

    def numbers(self) -> dict[str, float]:
        """Each component's score before transform and weight, NaN without a verdict."""
        numbers: dict[str, float] = {}
        for name in self.components:
            value = self.row[f"score_{name}"]
            numbers[name] = float("nan") if value is None else float(value)
        return numbers

    def statuses(self) -> dict[str, str]:
        """Each component's status."""
        return {name: str(self.row[f"status_{name}"]) for name in self.components}


class Gathered:
    """The rewards of a configuration for single responses: those that come close together are
    scored as one batch."""

    def __init__(self, shared: SharedRewards, missing_reward: float | None = None) -> None:
        """Raises ConfigError for a `missing_reward` that is not finite."""
        if missing_reward is not None and not math.isfinite(missing_reward):
            raise ConfigError(
                f"missing_reward={missing_reward}: a trainer would compute with it; give a finite"
                " number, e.g. -1, or leave it out"
            )
        self.shared = shared
        self._missing_reward = missing_reward
        self._components = tuple(spec.name for spec in shared.components)
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._thread: threading.Thread | None = None

    def submit(self, row: Row) -> Future[Scored]:
        """Hand over a response. The future has its scores, its batch's error, or a DataError where
        the row itself cannot be read."""
        future: Future[Scored] = Future()
        with self._changed:
            self._waiting.append(_Waiting(row, future, time.monotonic()))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="rmrl-gather", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return future

    def score(self, row: Row) -> Scored:
        """Score a response; blocks until its batch is scored. Raises what `result` raises."""
        return self.result(self.submit(row))

    def result(self, future: Future[Scored]) -> Scored:
        """Wait for the scores after a response was handed over. Raises its batch's error,
        InfrastructureError where the thread that scores has ended without it."""
        while not wait([future], LOOK_EVERY_S).done:
            self._check_thread(future)
        return future.result(0)

    async def score_async(self, row: Row) -> Scored:
        """Score a response on an event loop, as `score` does."""
        future = self.submit(row)
        scored = asyncio.wrap_future(future)
        try:
            while not scored.done():
                await asyncio.wait([scored], timeout=LOOK_EVERY_S)
                self._check_thread(future)
            return await scored
        finally:
            scored.cancel()

    def _check_thread(self, future: Future[Scored]) -> None:
        """Raise InfrastructureError for a future that nothing will complete any more."""
        with self._changed:
            alive = self._thread is not None and self._thread.is_alive()
        if not alive and not future.done():
            raise InfrastructureError(
                "the thread that scores responses ended before this one had its scores; its error"
                " stands above in the output of the process"
            )

    def score_batch(self, rows: Sequence[Row], *, within_budget: bool = True) -> list[Scored]:
        """Score a batch that is complete, and put the engines away. `within_budget`: as in
        `SharedRewards.score`."""
        table = self.shared.score(rows, within_budget=within_budget)
        self.shared.rest()
        return [self._scored(row) for row in table]

    def unreadable(self, error: DataError) -> Scored:
        """Return the scores of a response from which no row can be made: it has no verdict."""
        row: dict[str, Any] = {"reward": None}
        for name in self._components:
            row |= {f"score_{name}": None, f"status_{name}": "unparseable"}
            row[f"detail_{name}"] = str(error)
        return self._scored(row)

    def _scored(self, row: Row) -> Scored:
        return Scored(row, self._components, self._missing_reward)

    def _serve(self) -> None:
        """Score batch after batch. The thread ends when nothing came for REST_AFTER_S."""
        while True:
            batch = self._next_batch()
            if not batch:
                return
            # From here on a future cannot be cancelled, so that it takes its result.
            running = [entry for entry in batch if entry.future.set_running_or_notify_cancel()]
            if running:
                self._score(running)

    def _score(self, batch: list[_Waiting]) -> None:
        """Give every future its scores or its error."""
        try:
            # A batch is a handful of responses: the share of missing verdicts in it says nothing.
            table = list(self.shared.score([entry.row for entry in batch], within_budget=False))
        except DataError as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
                return
            # Nothing of the batch is scored yet; the halves find the row that cannot be read.
            half = len(batch) // 2
            self._score(batch[:half])
            self._score(batch[half:])
        except BaseException as error:
            for entry in batch:
                entry.future.set_exception(error)
        else:
            for row, entry in zip(table, batch, strict=True):
                entry.future.set_result(self._scored(row))

    def _next_batch(self) -> list[_Waiting]:
        """Return the responses that wait, when no more come or enough wait; [] when the engines
        are put away."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, REST_AFTER_S)
            while self._waiting and len(self._waiting) < MOST_ROWS:
                quiet = self._waiting[-1].since + WAIT_S
                remaining = min(quiet, self._waiting[0].since + OLDEST_S) - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            batch = self._waiting[:MOST_ROWS]
            self._waiting = self._waiting[MOST_ROWS:]
            if not batch:
                self._thread = None
        if not batch:
            self._rest()
        return batch

    def _rest(self) -> None:
        """Put the engines away. An error there is logged, as nobody waits for it."""
        try:
            self.shared.rest()
        except Exception:
            _log.exception("engines could not be put away")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A response whose batch is not scored yet."""

    row: Row
    future: Future[Scored]
    since: float
    """Second of time.monotonic at which it came."""


_GATHERED: dict[tuple[int, float | None, str], Gathered] = {}
_LOCK = threading.Lock()


def gathered_rewards(config: Config, *, missing_reward: float | None, caller: str) -> Gathered:
    """Return a configuration's gathered rewards, one object per configuration and process.

    Raises ConfigError where the configuration has problems, and for rewards that compare responses,
    which `caller` hands over one by one.
    """
    shared = shared_rewards(config)
    with _LOCK:
        key = id(shared), missing_reward, caller
        if key not in _GATHERED or _GATHERED[key].shared is not shared:
            _check_single(shared, caller)
            _GATHERED[key] = Gathered(shared, missing_reward)
        return _GATHERED[key]


def _check_single(shared: SharedRewards, caller: str) -> None:
    """Raise ConfigError for rewards that compare responses; warn about rules that take lists, which
    see one response at a time here."""
    checked = shared.rewards.checked
    comparing: list[str] = []
    in_lists: list[str] = []
    for spec in checked.specs:
        # Running statistics need no neighbours: they are of the responses that came before.
        if REWARD_KINDS[spec.kind].whole_groups or compared(spec.transforms) - {"running"}:
            comparing.append(spec.name)
        elif spec.whole_groups:
            in_lists.append(spec.name)
    if checked.config.reward.combine == "lexicographic":
        comparing.append("reward.combine=lexicographic")
    if comparing:
        raise ConfigError(
            f"{', '.join(comparing)}: compares responses with each other, and {caller} hands over"
            " one response at a time; leave it out here, or use a form of the adapter that takes"
            " whole batches"
        )
    if in_lists:
        _log.warning(
            f"{', '.join(in_lists)}: takes lists, and {caller} hands over one response at a time:"
            " the other responses to a prompt are not in the list"
        )


def number_of(text: Any, where: str) -> float | None:
    """Return a number that was typed, None for nothing. Raises ConfigError naming `where`."""
    if text is None or text == "":
        return None
    try:
        return float(text)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}={text!r}; need a number") from error
