"""One readable line per step; on a terminal also a progress bar, in a file the expected time left instead.

step 3/20 | reward 0.412 | answer_judge 0.55 (miss 0%) | scalar -1.20 | kl 0.0012 | len 23.1 | gen 2.1s score 3.0s | 13.0s
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from rmrl.telemetry import names
from rmrl.telemetry.sinks import SinkContext

STAGES = {"generate": "gen", "score": "score", "logprobs": "logp", "values": "val", "update": "train", "publish": "sync"}
"""Stages shown in the line, and their short names."""


class ConsoleSink:
    """Writes to `stream` (default: standard output). Control characters reach a terminal only, never a file or pipe."""

    def __init__(self, context: SinkContext, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._total = context.total_steps
        self._first = context.resume_step or 0
        self._now = now
        self._start = now()
        self._bar = self._open_bar() if self._stream.isatty() else None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print the step. Validation numbers logged on their own get a line of their own and do not move the bar."""
        is_step = names.REWARD_MEAN in metrics or names.STEP_TIME in metrics
        if self._bar is None:
            eta = self._eta(step) if is_step else ""
            print(step_line(step, metrics, total=self._total) + eta, file=self._stream, flush=True)
            return
        self._bar.clear()
        print(step_line(step, metrics, total=self._total), file=self._stream, flush=True)
        if is_step:
            self._bar.update(step - self._bar.n)
        self._bar.refresh()

    def close(self) -> None:
        """Take the bar down. The stream stays open: it is not ours."""
        if self._bar is not None:
            self._bar.close()

    def _open_bar(self) -> Any:
        from tqdm import tqdm  # only a terminal needs it

        return tqdm(total=self._total, initial=self._first, file=self._stream, unit="step", dynamic_ncols=True, leave=False)

    def _eta(self, step: int) -> str:
        done = step - self._first
        if self._total is None or done <= 0 or step >= self._total:
            return ""
        return f" | eta {duration((self._now() - self._start) / done * (self._total - step))}"


def step_line(step: int, metrics: Mapping[str, float], *, total: int | None = None) -> str:
    """The step as one line; what was not measured is left out."""
    parts = [f"step {step}" if total is None else f"step {step}/{total}"]
    parts += _value(metrics, names.REWARD_MEAN, "reward {:.3f}")
    parts += [_component(metrics, name) for name in names.component_names(metrics)]
    kl = names.REF_KL if names.REF_KL in metrics else names.KL
    parts += _value(metrics, kl, "kl {:.4f}") + _value(metrics, names.LENGTH_MEAN, "len {:.1f}")
    parts += [_validation(metrics, name) for name in names.validation_names(metrics)]
    stages = [text for name, short in STAGES.items() for text in _value(metrics, names.stage_time(name), short + " {:.1f}s")]
    parts += [" ".join(stages)] if stages else []
    return " | ".join(parts + _value(metrics, names.STEP_TIME, "{:.1f}s"))


def number(value: float) -> str:
    """About three digits: 1234, 12.3, 0.55, 0.0012."""
    size = abs(value)
    if size >= 1000 or size == 0:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"


def duration(seconds: float) -> str:
    """45s, 3m05s, 2h10m, 3d04h."""
    whole = round(seconds)
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // smaller:02d}{small_unit}"
    return f"{whole}s"


def _component(metrics: Mapping[str, float], name: str) -> str:
    mean = metrics.get(names.score_key(name, "mean"))
    missing = metrics.get(names.score_key(name, "missing"), 0.0)
    writes = metrics.get(names.score_key(name, "tokens_out"), 0.0) > 0
    # A judge that writes text can always be misread, so its misses stand even at 0; the others' only when there are any.
    misses = f" (miss {_percent(missing)})" if missing > 0 or writes else ""
    return f"{name} {'-' if mean is None else number(mean)}{misses}"


def _validation(metrics: Mapping[str, float], name: str) -> str:
    mean, missing = metrics.get(name), metrics.get(f"{name}/missing", 0.0)
    notes = [f"miss {_percent(missing)}"] if missing > 0 else []
    if best := names.best_of_all(metrics, name):
        notes.insert(0, f"{best.removeprefix(f'{name}/').removesuffix('/mean')} {number(metrics[best])}")
    return f"{name} {'-' if mean is None else number(mean)}" + (f" ({', '.join(notes)})" if notes else "")


def _percent(share: float) -> str:
    return "<1%" if 0 < share < 0.01 else f"{100 * share:.0f}%"


def _value(metrics: Mapping[str, float], key: str, form: str) -> list[str]:
    return [form.format(metrics[key])] if key in metrics else []
