"""Hints from the scores of the last steps at samples worth reading. They raise no alarm and change
nothing.

divergence     two components are anticorrelated: the policy probably exploits one of them
length         a component follows the response's length, up or down
unparseable    verdicts that could not be read
constant       a component gave one and the same score for a whole window: it teaches nothing
repeated       a judge wrote one and the same text about many different inputs

A hint needs evidence besides its threshold, so that a few unlucky samples make none: correlations
and shares must be clear of 0, and of the threshold, by EVIDENCE standard errors. Correlations are
taken over all responses of the window.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from rmrl.config.schema.reward import RewardMonitorConfig
from rmrl.types import Metrics, ScoreResult, Scores

EVIDENCE = 4.0
"""Number of standard errors; by chance alone about one test in 30000 exceeds it."""
SAMPLES_NAMED = 3
_UNREAD = ("unparseable", "judge_truncated", "judge_refused")
_CONSTANT_FROM_VERDICTS = 64
_CONSTANT_SPREAD = 1e-9
"""Share of the largest value; a smaller spread is rounding."""
_TOO_LARGE = 1e100
_REPEATED_FROM_INPUTS = 8
_REPEATED_FROM_CHARACTERS = 24
"""Shorter texts are bare verdicts, of which there are only few different ones."""


@dataclass(slots=True)
class Moments:
    """Count, means and centred sums of pairs; two of them add up without the original pairs."""

    n: int = 0
    mean_x: float = 0.0
    mean_y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> Moments:
        """Moments over the positions where both are numbers whose squares are finite; arrays of
        shape [B]."""
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

    def __add__(self, other: Moments) -> Moments:
        n = self.n + other.n
        if not n:
            return Moments()
        dx = other.mean_x - self.mean_x
        dy = other.mean_y - self.mean_y
        share = self.n * other.n / n
        return Moments(
            n,
            self.mean_x + dx * other.n / n,
            self.mean_y + dy * other.n / n,
            self.xx + other.xx + dx * dx * share,
            self.yy + other.yy + dy * dy * share,
            self.xy + other.xy + dx * dy * share,
        )

    @property
    def correlation(self) -> float | None:
        """Pearson's r; None where a side is constant or there is too little evidence that r is not
        0."""
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
    """Summary of one step in plain numbers, so that a checkpoint can store it."""

    pairs: dict[str, Moments] = field(default_factory=dict)
    """Key of a pair -> its moments."""
    asked: dict[str, int] = field(default_factory=dict)
    """Component -> number of responses that it had to score."""
    unread: dict[str, int] = field(default_factory=dict)
    span: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    """Component -> smallest score, largest score, number of scores."""


@dataclass(frozen=True, slots=True)
class _Hint:
    key: str
    """Sort of the hint, and the components."""
    text: str
    samples: Sequence[int]
    """Positions in the step, counted from 0."""


class Monitor:
    """Hints of each step's scores, observed once and in order. `metrics` counts the hints that
    hold, including those that are not repeated."""

    def __init__(self, settings: RewardMonitorConfig) -> None:
        self._settings = settings
        self._steps: deque[_Step] = deque(maxlen=max(settings.window, 1))
        self._reported: dict[str, int] = {}
        self._holding = 0

    def observe(self, step: int, scores: Scores, lengths: Sequence[int]) -> list[str]:
        """Return new hints, one line each; none of them returns within `window` steps. `lengths`:
        response tokens, shape [B].

        Samples are counted from 1 among the step's lines of samples.jsonl.
        """
        if not self._settings.enable or not len(lengths):
            return []
        current = _Now(scores, np.asarray(lengths, dtype=np.float64))
        self._steps.append(current.summary())
        hints = list(self._hints(current))
        self._holding = len(hints)
        pause = max(self._settings.window, 1)
        lines: list[str] = []
        for hint in hints:
            if step - self._reported.get(hint.key, -math.inf) >= pause:
                lines.append(_line(step, hint))
                self._reported[hint.key] = step
        return lines

    def metrics(self) -> Metrics:
        """`monitor/hints`: the number of hints that hold at the last step."""
        if self._settings.enable:
            return {"monitor/hints": float(self._holding)}
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return a JSON-compatible state of at most a few hundred numbers per step."""
        return {"steps": [asdict(step) for step in self._steps], "said": dict(self._reported)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue as if there had been no pause. With a smaller window than the saved one, its
        last steps count."""
        self._reported = {key: int(step) for key, step in state["said"].items()}
        self._steps.clear()
        for saved in state["steps"]:
            step = _Step(asked=dict(saved["asked"]), unread=dict(saved["unread"]))
            for key, moments in saved["pairs"].items():
                step.pairs[key] = Moments(**moments)
            for name, (low, high, n) in saved["span"].items():
                step.span[name] = (float(low), float(high), int(n))
            self._steps.append(step)

    def _hints(self, now: _Now) -> Iterator[_Hint]:
        for first, second in combinations(now.names, 2):
            yield from self._divergence(now, first, second)
        for name in now.names:
            yield from self._length(now, name)
            yield from self._unparseable(now, name)
            yield from self._constant(now, name)
            yield from self._repeated(now, name)

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
        total = sum(step.asked.get(name, 0) for step in self._steps)
        unread = sum(step.unread.get(name, 0) for step in self._steps)
        if total and share_at_least(unread, total) > self._settings.unparseable:
            text = f"{unread} of {total} verdicts of {name} could not be read over {self._window()}"
            results = enumerate(now.results[name])
            samples = [i for i, result in results if result.status in _UNREAD]
            yield _Hint(_key("unparseable", name), text, samples)

    def _constant(self, now: _Now, name: str) -> Iterator[_Hint]:
        spans = [step.span[name] for step in self._steps if name in step.span]
        count = sum(n for _, _, n in spans)
        if len(self._steps) < (self._steps.maxlen or 1) or count < _CONSTANT_FROM_VERDICTS:
            return
        low = min(low for low, _, _ in spans)
        high = max(high for _, high, _ in spans)
        if high - low <= _CONSTANT_SPREAD * max(abs(low), abs(high)):
            text = (
                f"{name} gave {low:g} to all {count} responses of {self._window()}, so nothing can"
                " be learned from it; these are some"
            )
            positions = np.flatnonzero(np.isfinite(now.values[name])).tolist()
            samples: list[int] = []
            if positions:
                # the first, the middle and the last
                picks = sorted({0, len(positions) // 2, len(positions) - 1})
                samples = [positions[i] for i in picks]
            yield _Hint(_key("constant", name), text, samples)

    def _repeated(self, now: _Now, name: str) -> Iterator[_Hint]:
        by_input: dict[str, tuple[str, int]] = {}
        for i, result in enumerate(now.results[name]):
            if result.raw_text:
                by_input[result.rendered or str(i)] = (result.raw_text.strip(), i)
        if len(by_input) < _REPEATED_FROM_INPUTS:
            return
        texts = [text for text, _ in by_input.values()]
        text, count = Counter(texts).most_common(1)[0]
        if len(text) >= _REPEATED_FROM_CHARACTERS and count / len(texts) > self._settings.repeated:
            line = (
                f"{name} wrote the same text about {count} of {len(texts)} different inputs,"
                f" beginning {text[:60]!r}"
            )
            samples = [i for other, i in by_input.values() if other == text]
            yield _Hint(_key("repeated", name), line, samples)

    def _pooled(self, pair: str) -> Moments:
        pooled = Moments()
        for step in self._steps:
            pooled += step.pairs.get(pair, Moments())
        return pooled

    def _window(self) -> str:
        if len(self._steps) == 1:
            return "1 step"
        return f"{len(self._steps)} steps"


class _Now:
    """Results and scores of one step by component."""

    def __init__(self, scores: Scores, lengths: np.ndarray) -> None:
        self.names = scores.names
        self.lengths = lengths
        self.results: dict[str, Sequence[ScoreResult]] = dict(
            zip(scores.names, scores.results, strict=True)
        )
        self.values: dict[str, np.ndarray] = {}
        for name, column in self.results.items():
            numbers = [math.nan if r.value is None else r.value for r in column]
            self.values[name] = np.asarray(numbers, dtype=np.float64)

    def summary(self) -> _Step:
        step = _Step()
        for name in self.names:
            step.pairs[_key(name, "")] = Moments.of(self.values[name], self.lengths)
        for a, b in combinations(self.names, 2):
            step.pairs[_key(a, b)] = Moments.of(self.values[a], self.values[b])
        for name, column in self.results.items():
            step.asked[name] = sum(result.status != "skipped" for result in column)
            step.unread[name] = sum(result.status in _UNREAD for result in column)
            finite = self.values[name][np.isfinite(self.values[name])]
            if len(finite):
                step.span[name] = (float(finite.min()), float(finite.max()), len(finite))
        return step


def share_at_least(hits: int, total: int) -> float:
    """Lower end of Wilson's interval: the true share is not below this, by EVIDENCE standard
    errors."""
    p = hits / total
    z2 = EVIDENCE**2
    centre = p + z2 / (2 * total)
    half_width = EVIDENCE * math.sqrt(p * (1 - p) / total + z2 / (4 * total**2))
    return (centre - half_width) / (1 + z2 / total)


def _key(*parts: str) -> str:
    return "\n".join(parts)


def _standard(values: np.ndarray) -> np.ndarray:
    """Centred and scaled over the finite positions; 0 everywhere when constant."""
    finite = values[np.isfinite(values)]
    spread = float(finite.std()) if len(finite) else 0.0
    if spread == 0:
        return np.zeros_like(values)
    return (values - finite.mean()) / spread


def _top(values: np.ndarray) -> list[int]:
    order = [int(i) for i in np.argsort(-values, kind="stable") if np.isfinite(values[i])]
    return order[:SAMPLES_NAMED]


def _line(step: int, hint: _Hint) -> str:
    numbers = [str(i + 1) for i in sorted(hint.samples[:SAMPLES_NAMED])]
    if not numbers:
        return f"step {step}: {hint.text} (none of them in this step)"
    if len(numbers) == 1:
        samples = f"sample {numbers[0]}"
    else:
        samples = f"samples {', '.join(numbers[:-1])} and {numbers[-1]}"
    return f"step {step}: look at {samples} of this step in samples.jsonl: {hint.text}"
