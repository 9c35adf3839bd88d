"""Hints at samples worth reading, from the last steps' scores. Hints raise no alarm and change
nothing.

divergence     two components are anticorrelated: the policy probably exploits one of them
length         a component follows the response's length, up or down
unparseable    verdicts that could not be read
unasked        responses that a component was not asked about
constant       a component gave one and the same score for a whole window: it teaches nothing
repeated       a judge wrote one and the same text about many different inputs
opposition     the reward rises over the steps while a watcher (entry `watch`) falls: the policy
               learns something else than what the watcher sees (Goodhart), if higher is better

A hint needs evidence besides its threshold, so that a few unlucky samples give no hint.
Correlations and shares must be clear of 0, and clear of the threshold, by EVIDENCE standard errors.
Correlations are taken over all responses in the window. `opposition` uses trends over the steps in
which the watcher was asked, and correlations within these steps, as in `trend`.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from statistics import mode
from typing import Any

import numpy as np

from rmrl.config.schema.reward import RewardMonitorConfig
from rmrl.rewards.session.trend import Opposition
from rmrl.types import Metrics, RewardBatch, ScoreResult, Scores

EVIDENCE = 4.0
"""Number of standard errors. By chance alone about one test in 30000 exceeds it."""
SAMPLES_NAMED = 3
_UNREAD = ("unparseable", "judge_truncated", "judge_refused")
_CONSTANT_FROM_VERDICTS = 64
_CONSTANT_SPREAD = 1e-9
"""Share of the largest value. A smaller spread is rounding."""
_TOO_LARGE = 1e100
_REPEATED_FROM_INPUTS = 8
_REPEATED_FROM_CHARACTERS = 24
"""Shorter texts are bare verdicts, of which there are only few different ones."""


@dataclass(slots=True)
class PairMoments:
    """Count, means and centred sums of pairs. Two of these add up without the original pairs."""

    n: int = 0
    mean_x: float = 0.0
    mean_y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> PairMoments:
        """Return the moments over the positions where both arrays (shape [B]) have numbers with
        finite squares."""
        both = (np.abs(x) < _TOO_LARGE) & (np.abs(y) < _TOO_LARGE)
        x = x[both]
        y = y[both]
        if not len(x):
            return cls()
        dx = x - x.mean()
        dy = y - y.mean()
        xx = float(dx @ dx)
        yy = float(dy @ dy)
        xy = float(dx @ dy)
        return cls(len(x), float(x.mean()), float(y.mean()), xx, yy, xy)

    def __add__(self, other: PairMoments) -> PairMoments:
        n = self.n + other.n
        if not n:
            return PairMoments()
        dx = other.mean_x - self.mean_x
        dy = other.mean_y - self.mean_y
        share = self.n * other.n / n
        return PairMoments(
            n,
            self.mean_x + dx * other.n / n,
            self.mean_y + dy * other.n / n,
            self.xx + other.xx + dx * dx * share,
            self.yy + other.yy + dy * dy * share,
            self.xy + other.xy + dx * dy * share,
        )

    @property
    def correlation(self) -> float | None:
        """Pearson's r. None where a side is constant, or where the evidence that r is not 0 is too
        small."""
        flat_x = self.n * (_CONSTANT_SPREAD * self.mean_x) ** 2
        flat_y = self.n * (_CONSTANT_SPREAD * self.mean_y) ** 2
        if self.n < 4 or self.xx <= flat_x or self.yy <= flat_y:
            return None
        r = max(-1.0, min(1.0, self.xy / math.sqrt(self.xx) / math.sqrt(self.yy)))
        # Fisher: atanh(r) has a standard error of 1 / sqrt(n - 3)
        z = math.inf if abs(r) == 1 else abs(math.atanh(r))
        if z * math.sqrt(self.n - 3) > EVIDENCE:
            return r
        return None


@dataclass(slots=True)
class _Step:
    """One step's summary in plain numbers, so that a checkpoint can store it."""

    pairs: dict[str, PairMoments] = field(default_factory=dict)
    """Key of a pair -> its moments."""
    asked: dict[str, int] = field(default_factory=dict)
    """Component -> number of responses that the component had to score."""
    unread: dict[str, int] = field(default_factory=dict)
    """Component -> number of verdicts that could not be read."""
    unasked: dict[str, int] = field(default_factory=dict)
    """Component -> number of responses about which it was not asked."""
    span: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    """Component -> smallest score, largest score, number of scores."""


@dataclass(frozen=True, slots=True)
class _Hint:
    key: str
    """Sort of the hint, and the components."""
    text: str
    samples: Sequence[int]
    """Positions in the step, counted from 0."""

    def line(self, step: int) -> str:
        """Return the hint as a line for a reader. Samples are counted from 1."""
        numbers = [str(i + 1) for i in sorted(self.samples[:SAMPLES_NAMED])]
        if not numbers:
            return f"step {step}: {self.text} (none of them in this step)"
        if len(numbers) == 1:
            samples = f"sample {numbers[0]}"
        else:
            samples = f"samples {', '.join(numbers[:-1])} and {numbers[-1]}"
        return f"step {step}: look at {samples} of this step in samples.jsonl: {self.text}"


class Monitor:
    """Finds hints in each step's scores. Observe each step once and in order. `metrics` counts the
    hints that hold, repeated or not."""

    def __init__(self, settings: RewardMonitorConfig, *, watchers: Collection[str] = ()) -> None:
        """`watchers`: names of the components with the entry `watch`."""
        self._settings = settings
        self._watchers = watchers
        self._steps: deque[_Step] = deque(maxlen=max(settings.window, 1))
        self._watched: dict[str, Opposition] = {}
        self._reported: dict[str, int] = {}
        self._holding = 0

    def observe(
        self,
        step: int,
        scores: Scores,
        lengths: Sequence[int],
        *,
        rewards: RewardBatch | None = None,
    ) -> list[str]:
        """Return new hints, one line each. A hint does not return within `window` steps. `lengths`:
        response tokens, shape [B]. `rewards`: the combined scores, for the watchers' hints.

        Samples are counted from 1 among the step's lines in samples.jsonl.
        """
        if not self._settings.enable or not len(lengths):
            return []
        current = _Now(scores, np.asarray(lengths, dtype=np.float64))
        self._steps.append(current.summary())
        hints: list[_Hint] = []
        for first, second in combinations(current.names, 2):
            hints += self._divergence(current, first, second)
        for name in current.names:
            hints += self._length(current, name)
            hints += self._unparseable(current, name)
            hints += self._unasked(current, name)
            hints += self._constant(current, name)
            hints += self._repeated(current, name)
        if rewards is not None:
            for name in current.names:
                if name in self._watchers:
                    hints += self._opposition(current, name, step, rewards)
        self._holding = len(hints)
        pause = max(self._settings.window, 1)
        lines: list[str] = []
        for hint in hints:
            if step - self._reported.get(hint.key, -math.inf) >= pause:
                lines.append(hint.line(step))
                self._reported[hint.key] = step
        return lines

    def metrics(self) -> Metrics:
        """Return `monitor/hints`: the number of hints that hold at the last step."""
        if self._settings.enable:
            return {"monitor/hints": float(self._holding)}
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return a JSON-compatible state with at most a few hundred numbers per step."""
        watched = {name: each.steps for name, each in self._watched.items()}
        return {
            "steps": [asdict(step) for step in self._steps],
            "said": dict(self._reported),
            "watched": watched,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as if there had been no pause. If the window is smaller than the saved one, its
        last steps count."""
        self._reported = {key: int(step) for key, step in state["said"].items()}
        self._steps.clear()
        for saved in state["steps"]:
            step = _Step(
                asked=dict(saved["asked"]),
                unread=dict(saved["unread"]),
                unasked=dict(saved.get("unasked", {})),
            )
            for key, moments in saved["pairs"].items():
                step.pairs[key] = PairMoments(**moments)
            for name, (low, high, n) in saved["span"].items():
                step.span[name] = (float(low), float(high), int(n))
            self._steps.append(step)
        self._watched = {}
        for name, steps in state.get("watched", {}).items():
            # Steps of older checkpoints end before the sums of pairs.
            padded = [(*each, 0, 0.0, 0.0, 0.0)[:9] for each in steps]
            self._watched[name] = Opposition(padded)

    def _divergence(self, now: _Now, first: str, second: str) -> Iterator[_Hint]:
        r = self._pooled(_key(first, second)).correlation
        if r is not None and r < self._settings.divergence:
            gap = np.abs(_standard(now.values[first]) - _standard(now.values[second]))
            text = (
                f"{first} and {second} disagree (correlation {r:.2f} over {self._window()}), most"
                " of all here"
            )
            yield _Hint(_key("divergence", first, second), text, _top(gap))

    def _length(self, now: _Now, name: str) -> Iterator[_Hint]:
        r = self._pooled(_key(name, "")).correlation
        if r is not None and abs(r) > self._settings.length:
            what = "longer" if r > 0 else "shorter"
            text = (
                f"{name} likes {what} responses (correlation with length {r:+.2f} over"
                f" {self._window()}); these do it the most"
            )
            strength = _standard(now.values[name]) + math.copysign(1, r) * _standard(now.lengths)
            yield _Hint(_key("length", name), text, _top(strength))

    def _unparseable(self, now: _Now, name: str) -> Iterator[_Hint]:
        total = 0
        unread = 0
        for step in self._steps:
            total += step.asked.get(name, 0)
            unread += step.unread.get(name, 0)
        if total and share_at_least(unread, total) > self._settings.unparseable:
            text = f"{unread} of {total} verdicts of {name} could not be read over {self._window()}"
            samples: list[int] = [
                i
                for i, result in enumerate(now.results[name])
                if result.status in _UNREAD and not result.unasked
            ]
            yield _Hint(_key("unparseable", name), text, samples)

    def _unasked(self, now: _Now, name: str) -> Iterator[_Hint]:
        asked = sum(step.asked.get(name, 0) for step in self._steps)
        unasked = sum(step.unasked.get(name, 0) for step in self._steps)
        total = asked + unasked
        if total and share_at_least(unasked, total) > self._settings.unparseable:
            samples = [i for i, result in enumerate(now.results[name]) if result.unasked]
            text = f"{name} was not asked about {unasked} of {total} responses over"
            text = f"{text} {self._window()}"
            if samples:
                text += f": {mode(now.results[name][i].detail for i in samples)}"
            yield _Hint(_key("unasked", name), text, samples)

    def _constant(self, now: _Now, name: str) -> Iterator[_Hint]:
        low = math.inf
        high = -math.inf
        count = 0
        for step in self._steps:
            if name in step.span:
                step_low, step_high, verdicts = step.span[name]
                low = min(low, step_low)
                high = max(high, step_high)
                count += verdicts
        if len(self._steps) < (self._steps.maxlen or 1) or count < _CONSTANT_FROM_VERDICTS:
            return
        if high - low <= _CONSTANT_SPREAD * max(abs(low), abs(high)):
            text = (
                f"{name} gave {low:g} to all {count} responses of {self._window()}, so nothing can"
                " be learned from it; these are some"
            )
            positions = np.flatnonzero(np.isfinite(now.values[name])).tolist()
            # The first, the middle and the last.
            middle = len(positions) // 2
            samples = {*positions[:1], *positions[middle : middle + 1], *positions[-1:]}
            yield _Hint(_key("constant", name), text, sorted(samples))

    def _repeated(self, now: _Now, name: str) -> Iterator[_Hint]:
        last_of_input: dict[str, int] = {
            result.rendered or str(i): i
            for i, result in enumerate(now.results[name])
            if result.raw_text
        }
        if len(last_of_input) < _REPEATED_FROM_INPUTS:
            return
        by_text: dict[str, list[int]] = {}
        for i in last_of_input.values():
            by_text.setdefault(now.results[name][i].raw_text.strip(), []).append(i)
        text, samples = max(by_text.items(), key=lambda entry: len(entry[1]))
        share = len(samples) / len(last_of_input)
        if len(text) >= _REPEATED_FROM_CHARACTERS and share > self._settings.repeated:
            line = (
                f"{name} wrote the same text about {len(samples)} of {len(last_of_input)} different"
                f" inputs, beginning {text[:60]!r}"
            )
            yield _Hint(_key("repeated", name), line, samples)

    def _opposition(self, now: _Now, name: str, step: int, rewards: RewardBatch) -> Iterator[_Hint]:
        rewards_B = np.where(rewards.keep_B, rewards.rewards_B, np.nan)
        both_B2 = np.column_stack([rewards_B, now.values[name]])
        finite_B2 = np.isfinite(both_B2)
        if not finite_B2.any(axis=0).all():
            return
        history = self._watched.setdefault(name, Opposition())
        reward_N = rewards_B[finite_B2[:, 0]]
        verdict_N = now.values[name][finite_B2[:, 1]]
        history.add(step, reward_N, verdict_N, both_N2=both_B2[finite_B2.all(axis=1)])
        opposed = history.found()
        if opposed is not None:
            against = ""
            if opposed.correlation is not None:
                against = (
                    ", and within steps the responses with more reward have less of it"
                    f" (correlation {opposed.correlation:.2f})"
                )
            text = (
                f"the reward rises ({opposed.rising:+.2g} a step) and the watcher {name} falls"
                f" ({opposed.falling:+.2g}) since step {history.steps[-opposed.count][0]}, over"
                f" {opposed.count} steps in which it was asked{against}: if higher is better there,"
                " the policy probably exploits the reward, most of all here"
            )
            gap = _standard(rewards_B) - _standard(now.values[name])
            yield _Hint(_key("opposition", name), text, _top(gap))

    def _pooled(self, pair: str) -> PairMoments:
        pooled = PairMoments()
        for step in self._steps:
            pooled += step.pairs.get(pair, PairMoments())
        return pooled

    def _window(self) -> str:
        if len(self._steps) == 1:
            return "1 step"
        return f"{len(self._steps)} steps"


class _Now:
    """One step's results and scores by component."""

    def __init__(self, scores: Scores, lengths: np.ndarray) -> None:
        self.names = scores.names
        self.lengths = lengths
        self.results: dict[str, Sequence[ScoreResult]] = dict(
            zip(scores.names, scores.results, strict=True)
        )
        self.values: dict[str, np.ndarray] = {}
        for name, column in self.results.items():
            # None becomes NaN.
            self.values[name] = np.array([result.value for result in column], dtype=np.float64)

    def summary(self) -> _Step:
        step = _Step()
        for name in self.names:
            step.pairs[_key(name, "")] = PairMoments.of(self.values[name], self.lengths)
        for a, b in combinations(self.names, 2):
            step.pairs[_key(a, b)] = PairMoments.of(self.values[a], self.values[b])
        for name, column in self.results.items():
            statuses = Counter(result.status for result in column if not result.unasked)
            step.unasked[name] = sum(result.unasked for result in column)
            step.asked[name] = statuses.total() - statuses["skipped"]
            step.unread[name] = sum(map(statuses.__getitem__, _UNREAD))
            finite = self.values[name][np.isfinite(self.values[name])]
            if len(finite):
                step.span[name] = (float(finite.min()), float(finite.max()), len(finite))
        return step


def share_at_least(hits: int, total: int) -> float:
    """Return the lower end of Wilson's interval: the true share is not below this, by EVIDENCE
    standard errors."""
    p = hits / total
    z2 = EVIDENCE**2
    centre = p + z2 / (2 * total)
    half_width = EVIDENCE * math.sqrt(p * (1 - p) / total + z2 / (4 * total**2))
    return (centre - half_width) / (1 + z2 / total)


def _key(*parts: str) -> str:
    return "\n".join(parts)


def _standard(values: np.ndarray) -> np.ndarray:
    """Centre and scale over the finite positions. Return 0 everywhere for a constant."""
    finite = values[np.isfinite(values)]
    spread = float(finite.std()) if len(finite) else 0.0
    if spread == 0:
        return np.zeros_like(values)
    return (values - finite.mean()) / spread


def _top(values: np.ndarray) -> list[int]:
    order = np.argsort(-values, kind="stable")
    return order[np.isfinite(values[order])][:SAMPLES_NAMED].tolist()
