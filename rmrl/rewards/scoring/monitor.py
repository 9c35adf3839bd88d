"""Reads the scores of the last steps and says which samples are worth reading. It raises no alarm
and changes nothing.

divergence     two components are anticorrelated: one of them is probably being played
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
"""Standard errors; chance alone goes further about once in 30000 looks."""
SAMPLES_NAMED = 3
_UNREAD = ("unparseable", "judge_truncated", "judge_refused")
_CONSTANT_FROM_VERDICTS = 64
_CONSTANT_SPREAD = 1e-9
"""Of the largest value: less is rounding."""
_TOO_LARGE = 1e100
_REPEATED_FROM_INPUTS = 8
_REPEATED_FROM_CHARACTERS = 24
"""Shorter texts are bare verdicts, of which there are only few different ones."""


@dataclass(slots=True)
class Moments:
    """Count, means and centred sums of pairs; two of them add up without the originals."""

    n: int = 0
    mean_x: float = 0.0
    mean_y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> Moments:
        """Of the positions where both are numbers whose squares are numbers; arrays of shape
        [B]."""
        both = (np.abs(x) < _TOO_LARGE) & (np.abs(y) < _TOO_LARGE)
        x = x[both]
        y = y[both]
        if not len(x):
            return cls()
        dx = x - x.mean()
        dy = y - y.mean()
        return cls(
            len(x), float(x.mean()), float(y.mean()), float(dx @ dx), float(dy @ dy), float(dx @ dy)
        )

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
        flat = min(
            self.xx - self.n * (_CONSTANT_SPREAD * self.mean_x) ** 2,
            self.yy - self.n * (_CONSTANT_SPREAD * self.mean_y) ** 2,
        )
        if self.n < 4 or flat <= 0:
            return None
        r = max(-1.0, min(1.0, self.xy / math.sqrt(self.xx) / math.sqrt(self.yy)))
        # Fisher: atanh(r) has a standard error of 1 / sqrt(n - 3)
        z = math.inf if abs(r) == 1 else abs(math.atanh(r))
        if z * math.sqrt(self.n - 3) > EVIDENCE:
            return r
        return None


@dataclass(slots=True)
class _Step:
    """What is kept of one step; plain numbers, so that a checkpoint can hold it."""

    pairs: dict[str, Moments] = field(default_factory=dict)
    """Key of a pair -> its moments."""
    asked: dict[str, int] = field(default_factory=dict)
    """Component -> responses it was asked about."""
    unread: dict[str, int] = field(default_factory=dict)
    span: dict[str, tuple[float, float, int]] = field(default_factory=dict)
    """Component -> smallest score, largest score, number of scores."""


@dataclass(frozen=True, slots=True)
class _Hint:
    key: str
    """What is hinted at, and the components."""
    text: str
    samples: Sequence[int]
    """Positions in the step, counted from 0."""


class Monitor:
    """Looks at each step's scores once, in order. `metrics` counts the hints that hold, those that
    are not repeated included."""

    def __init__(self, settings: RewardMonitorConfig) -> None:
        self._settings = settings
        self._steps: deque[_Step] = deque(maxlen=max(settings.window, 1))
        self._said: dict[str, int] = {}
        self._holding = 0

    def observe(self, step: int, scores: Scores, lengths: Sequence[int]) -> list[str]:
        """New hints, one line each; none of them returns within `window` steps. `lengths`: response
        tokens, shape [B].

        Samples are counted from 1 among the step's lines of samples.jsonl.
        """
        if not self._settings.enable or not len(lengths):
            return []
        now = _Now(scores, np.asarray(lengths, dtype=np.float64))
        self._steps.append(now.summary())
        hints = list(self._hints(now))
        self._holding = len(hints)
        fresh = [
            hint
            for hint in hints
            if step - self._said.get(hint.key, -math.inf) >= max(self._settings.window, 1)
        ]
        self._said |= {hint.key: step for hint in fresh}
        return [_line(step, hint) for hint in fresh]

    def metrics(self) -> Metrics:
        """`monitor/hints`: how many hold at the last step."""
        if self._settings.enable:
            return {"monitor/hints": float(self._holding)}
        return {}

    def state_dict(self) -> dict[str, Any]:
        """JSON-compatible; a few hundred numbers a step at most."""
        return {"steps": [asdict(step) for step in self._steps], "said": dict(self._said)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as if there had been no pause; with a smaller window than saved, its last steps
        count."""
        self._said = {key: int(step) for key, step in state["said"].items()}
        self._steps.clear()
        for saved in state["steps"]:
            pairs = {key: Moments(**moments) for key, moments in saved["pairs"].items()}
            span = {
                name: (float(low), float(high), int(n))
                for name, (low, high, n) in saved["span"].items()
            }
            self._steps.append(_Step(pairs, dict(saved["asked"]), dict(saved["unread"]), span))

    def _hints(self, now: _Now) -> Iterator[_Hint]:
        for left, right in combinations(now.names, 2):
            yield from self._divergence(now, left, right)
        for name in now.names:
            yield from self._length(now, name)
            yield from self._unparseable(now, name)
            yield from self._constant(now, name)
            yield from self._repeated(now, name)

    def _divergence(self, now: _Now, left: str, right: str) -> Iterator[_Hint]:
        r = self._pooled(_key(left, right)).correlation
        if r is not None and r < self._settings.divergence:
            gap = np.abs(_standard(now.values[left]) - _standard(now.values[right]))
            text = (
                f"{left} and {right} disagree (correlation {r:.2f} over {self._window()}), most of"
                " all here"
            )
            yield _Hint(_key("divergence", left, right), text, _top(gap))

    def _length(self, now: _Now, name: str) -> Iterator[_Hint]:
        r = self._pooled(_key(name, "")).correlation
        if r is not None and abs(r) > self._settings.length:
            what = "longer" if r > 0 else "shorter"
            text = (
                f"{name} likes {what} responses (correlation with length {r:+.2f} over"
                f" {self._window()}); these do it the most"
            )
            yield _Hint(
                _key("length", name),
                text,
                _top(_standard(now.values[name]) + math.copysign(1, r) * _standard(now.lengths)),
            )

    def _unparseable(self, now: _Now, name: str) -> Iterator[_Hint]:
        asked, unread = (
            sum(getattr(step, what).get(name, 0) for step in self._steps)
            for what in ("asked", "unread")
        )
        if asked and share_at_least(unread, asked) > self._settings.unparseable:
            text = f"{unread} of {asked} verdicts of {name} could not be read over {self._window()}"
            yield _Hint(
                _key("unparseable", name),
                text,
                [i for i, result in enumerate(now.results[name]) if result.status in _UNREAD],
            )

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
            yield _Hint(
                _key("constant", name),
                text,
                _spread_over(np.flatnonzero(np.isfinite(now.values[name]))),
            )

    def _repeated(self, now: _Now, name: str) -> Iterator[_Hint]:
        texts = {
            result.rendered or str(i): (result.raw_text.strip(), i)
            for i, result in enumerate(now.results[name])
            if result.raw_text
        }
        if len(texts) < _REPEATED_FROM_INPUTS:
            return
        text, count = Counter(text for text, _ in texts.values()).most_common(1)[0]
        if len(text) >= _REPEATED_FROM_CHARACTERS and count / len(texts) > self._settings.repeated:
            line = (
                f"{name} wrote the same text about {count} of {len(texts)} different inputs,"
                f" beginning {text[:60]!r}"
            )
            yield _Hint(
                _key("repeated", name), line, [i for found, i in texts.values() if found == text]
            )

    def _pooled(self, pair: str) -> Moments:
        return sum((step.pairs[pair] for step in self._steps if pair in step.pairs), Moments())

    def _window(self) -> str:
        if len(self._steps) == 1:
            return "1 step"
        return f"{len(self._steps)} steps"


class _Now:
    """One step, by component."""

    def __init__(self, scores: Scores, lengths: np.ndarray) -> None:
        self.names = scores.names
        self.lengths = lengths
        self.results: dict[str, Sequence[ScoreResult]] = dict(
            zip(scores.names, scores.results, strict=True)
        )
        values = {
            name: [math.nan if r.value is None else r.value for r in column]
            for name, column in self.results.items()
        }
        self.values = {
            name: np.asarray(column, dtype=np.float64) for name, column in values.items()
        }

    def summary(self) -> _Step:
        kept = _Step(
            pairs={
                _key(name, ""): Moments.of(self.values[name], self.lengths) for name in self.names
            }
        )
        kept.pairs |= {
            _key(a, b): Moments.of(self.values[a], self.values[b])
            for a, b in combinations(self.names, 2)
        }
        for name, column in self.results.items():
            kept.asked[name] = sum(result.status != "skipped" for result in column)
            kept.unread[name] = sum(result.status in _UNREAD for result in column)
            finite = self.values[name][np.isfinite(self.values[name])]
            if len(finite):
                kept.span[name] = (float(finite.min()), float(finite.max()), len(finite))
        return kept


def share_at_least(hits: int, total: int) -> float:
    """Lower end of Wilson's interval: the true share is not below this, by EVIDENCE standard
    errors."""
    p = hits / total
    z2 = EVIDENCE**2
    centre = p + z2 / (2 * total)
    return (centre - EVIDENCE * math.sqrt(p * (1 - p) / total + z2 / (4 * total**2))) / (
        1 + z2 / total
    )


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


def _spread_over(positions: np.ndarray) -> list[int]:
    """The first, the middle and the last."""
    if len(positions):
        return [int(positions[i]) for i in sorted({0, len(positions) // 2, len(positions) - 1})]
    return []


def _line(step: int, hint: _Hint) -> str:
    named = [str(i + 1) for i in sorted(hint.samples[:SAMPLES_NAMED])]
    if not named:
        return f"step {step}: {hint.text} (none of them in this step)"
    head = ", ".join(named[:-1])
    last = named[-1]
    which = f"samples {head} and {last}" if head else f"sample {last}"
    return f"step {step}: look at {which} of this step in samples.jsonl: {hint.text}"
