"""Time of a step by stage.

A stage's time is the wall-clock time during which the stage was running at least once: a stage
inside itself, or the same stage in several asyncio tasks or threads at once, is counted once.
Different stages may nest or overlap. Each keeps its own time, so stages can add up to more than the
step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from rmrl.clock import Clock
from rmrl.telemetry.names import OTHER_TIME, STEP_TIME, TOKENS_PER_S, stage_time
from rmrl.types import Metrics


@dataclass(slots=True)
class _Span:
    """Seconds during which at least one block was open."""

    running: int = 0
    since: float = 0.0
    total_s: float = 0.0

    def enter(self, now: float) -> None:
        if self.running == 0:
            self.since = now
        self.running += 1

    def leave(self, now: float) -> None:
        self.running -= 1
        if self.running == 0:
            self.total_s += now - self.since

    def read(self, now: float) -> float:
        return self.total_s + (now - self.since if self.running else 0.0)

    def reset(self, now: float) -> None:
        self.since = now
        self.total_s = 0.0


class StepClock:
    """Times one step's stages: `with clock("generate"): ...`, also around awaits.

    A stage that is open when `restart` is called
    counts from there on.
    """

    def __init__(self, now: Clock = time.perf_counter) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._stages: dict[str, _Span] = {}
        self._any = _Span()
        self._start = now()

    def restart(self) -> None:
        """Begin a new step: all times go back to zero."""
        with self._lock:
            self._start = self._now()
            self._stages = {name: span for name, span in self._stages.items() if span.running}
            for span in (self._any, *self._stages.values()):
                span.reset(self._start)

    @contextmanager
    def __call__(self, stage: str) -> Generator[None, None, None]:
        """Count the block as `stage`, whether it returns or raises."""
        with self._lock:
            span = self._stages.setdefault(stage, _Span())
            now = self._now()
            span.enter(now)
            self._any.enter(now)
        try:
            yield
        finally:
            with self._lock:
                now = self._now()
                span.leave(now)
                self._any.leave(now)

    def metrics(self, tokens: int = 0) -> Metrics:
        """Times since the last restart: `time/<stage>_s`, `time/step_s`, `time/other_s` (in no
        stage), all in seconds.

        `tokens`: tokens handled in this step; more than 0 adds `perf/tokens_per_s`.
        """
        with self._lock:
            now = self._now()
            step_s = now - self._start
            out = {stage_time(name): span.read(now) for name, span in self._stages.items()}
            out[OTHER_TIME] = step_s - self._any.read(now)
        out[STEP_TIME] = step_s
        if tokens > 0 and step_s > 0:
            out[TOKENS_PER_S] = tokens / step_s
        return out


class Durations:
    """Seconds of actions that happen within a step's stages, such as every sleep of an engine:
    `with durations("perf/rollout/sleep_s"): ...`, also around awaits."""

    def __init__(self, now: Clock = time.perf_counter) -> None:
        self._now = now
        self._seconds: Metrics = {}

    @contextmanager
    def __call__(self, name: str) -> Generator[None, None, None]:
        """Add the seconds of the block to `name`, whether it returns or raises."""
        start = self._now()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + self._now() - start

    def take(self) -> Metrics:
        """Return the sums since the last call, by name."""
        seconds = self._seconds
        self._seconds = {}
        return seconds


def rough_duration(seconds: float) -> str:
    """Format with two digits at most: "40 s", "12 min", "9 h", "3 days"."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"
