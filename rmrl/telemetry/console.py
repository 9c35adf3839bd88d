"""One readable line per step, with a progress bar on a terminal; in a file with the expected time
left instead of the bar.

step 3/20 | reward 0.412 | answer_judge 0.55 (miss 0%) | scalar -1.20 | kl 0.0012 | len 23.1 | gen
2.1s score 3.0s | 13.0s

A line is as wide as the terminal, 100 columns in a file. Where it does not fit, the seconds per
stage are left out, then the rewards get short names (ans_jud), then length, KL and the time left
are left out. Every reward stays: what is still too long goes on in the next line. metrics.jsonl has
everything.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rmrl.clock import Clock
from rmrl.telemetry import names
from rmrl.telemetry.sinks import SinkContext

STAGES = {
    "generate": "gen",
    "score": "score",
    "logprobs": "logp",
    "values": "val",
    "update": "train",
    "publish": "sync",
}
"""Stages shown in the line, and their short names."""


_FILE_COLUMNS = 100
_BETWEEN = " | "
_SHORT_NAMES = 3
"""Rank at which rewards get short names."""


class ConsoleSink:
    """Writes to `stream` (default: standard output). Control characters reach a terminal only,
    never a file or pipe."""

    def __init__(
        self,
        context: SinkContext,
        stream: TextIO | None = None,
        now: Clock = time.monotonic,
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._total = context.total_steps
        self._first = context.resume_step or 0
        self._now = now
        self._start = now()
        self._bar: Any = None
        if self._stream.isatty():
            from tqdm import tqdm  # only a terminal needs it

            self._bar = tqdm(
                total=self._total,
                initial=self._first,
                file=self._stream,
                unit="step",
                dynamic_ncols=True,
                leave=False,
            )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print the step. Validation numbers logged on their own get a line of their own and do not
        move the bar."""
        is_step = names.REWARD_MEAN in metrics or names.STEP_TIME in metrics
        eta = ""
        done = step - self._first
        if is_step and self._bar is None and self._total is not None and done > 0:
            remaining = self._total - step
            if remaining > 0:
                eta = f"eta {duration((self._now() - self._start) / done * remaining)}"
        width = shutil.get_terminal_size((_FILE_COLUMNS, 24)).columns
        self._print(step_line(step, metrics, total=self._total, eta=eta, width=width))
        if self._bar is not None and is_step:
            self._bar.update(step - self._bar.n)
            self._bar.refresh()

    def text(self, step: int, text: str) -> None:
        """Print a block of text, such as a scored sample, below the line of its step."""
        del step
        self._print(text)

    def close(self) -> None:
        """Remove the bar. The stream stays open: it belongs to the caller."""
        if self._bar is not None:
            self._bar.close()

    def _print(self, text: str) -> None:
        if self._bar is None:
            print(text, file=self._stream, flush=True)
            return
        self._bar.clear()
        print(text, file=self._stream, flush=True)
        self._bar.refresh()


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a step's line. The highest rank is left out first, rank 0 never."""

    text: str
    rank: int
    short: str = ""
    """A reward's text with its short name."""


def step_line(
    step: int,
    metrics: Mapping[str, float],
    *,
    total: int | None = None,
    eta: str = "",
    width: int | None = None,
) -> str:
    """Format the step as one line of at most `width` characters (None: everything), or as several
    where the unranked parts are longer.

    Numbers that were not measured are left out.
    """
    parts = [_Part(f"step {step}" if total is None else f"step {step}/{total}", 0)]

    def add(text: str, rank: int, short: str = "") -> None:
        if text:
            parts.append(_Part(text, rank, short))

    add(_value(metrics, names.REWARD_MEAN, "reward {:.3f}"), 0)
    for key, form in names.REWARD_TRAINING.items():
        add(_value(metrics, key, form), 0)
    components = names.component_names(metrics)
    short = short_names(components)
    for name in components:
        values = _component(metrics, name)
        add(f"{name} {values}", 0, f"{short[name]} {values.removesuffix(' (miss 0%)')}")
    add(_value(metrics, names.REF_KL if names.REF_KL in metrics else names.KL, "kl {:.4f}"), 1)
    add(_value(metrics, names.LENGTH_MEAN, "len {:.1f}"), 2)
    for name in names.validation_names(metrics):
        add(_validation(metrics, name), 0)
    stages: list[str] = [
        _value(metrics, names.stage_time(name), label + " {:.1f}s")
        for name, label in STAGES.items()
    ]
    add(" ".join(filter(None, stages)), _SHORT_NAMES + 1)
    add(_value(metrics, names.STEP_TIME, "{:.1f}s"), 0)
    add(eta, 1)
    return _joined(parts, width)


def _joined(parts: Sequence[_Part], width: int | None) -> str:
    pieces = list(parts)
    ranks = sorted({_SHORT_NAMES, *(part.rank for part in parts)}, reverse=True)
    texts = [part.text for part in pieces]
    for rank in ranks:
        if width is None or rank == 0 or len(_BETWEEN.join(texts)) <= width:
            break
        texts = []
        pieces = [part for part in pieces if part.rank < rank or part.rank == 0]
        for part in pieces:
            texts.append(part.short or part.text if rank <= _SHORT_NAMES else part.text)
    lines = [texts[0]]
    for text in texts[1:]:
        if width is not None and len(lines[-1]) + len(_BETWEEN) + len(text) > width:
            lines.append(f"  {text}")
        else:
            lines[-1] += _BETWEEN + text
    return "\n".join(lines)


def short_names(components: Sequence[str]) -> dict[str, str]:
    """Return name -> the first letters of its words (answer_judge: ans_jud). The name itself where
    another has the same."""
    short: dict[str, str] = {}
    for name in components:
        words = re.split(r"[_\W]+", name)
        short[name] = "_".join(word if len(word) <= 4 else word[:3] for word in words)
    values = list(short.values())
    for name, text in short.items():
        if values.count(text) > 1:
            short[name] = name
    return short


def number(value: float) -> str:
    """Format with about three digits: 1234, 12.3, 0.55, 0.0012."""
    size = abs(value)
    if size >= 1000 or size == 0:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.1:
        return f"{value:.2f}"
    return f"{value:.2g}"


def duration(seconds: float) -> str:
    """Format as 45s, 3m05s, 2h10m or 3d04h."""
    whole = round(seconds)
    for size, unit, smaller, small_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // smaller:02d}{small_unit}"
    return f"{whole}s"


def _component(metrics: Mapping[str, float], name: str) -> str:
    mean = metrics.get(names.score_key(name, "mean"))
    missing = metrics.get(names.score_key(name, "missing"), 0.0)
    writes = metrics.get(names.score_key(name, "tokens_out"), 0.0) > 0
    # A judge that writes text can always be misread, so its misses stand even at 0; the others'
    # only when there are any.
    misses = f" (miss {_percent(missing)})" if missing > 0 or writes else ""
    return f"{'-' if mean is None else number(mean)}{misses}"


def _validation(metrics: Mapping[str, float], name: str) -> str:
    mean = metrics.get(name)
    missing = metrics.get(f"{name}/missing", 0.0)
    notes: list[str] = []
    best = names.best_of_all(metrics, name)
    if best:
        short = best.removeprefix(f"{name}/").removesuffix("/mean")
        notes.append(f"{short} {number(metrics[best])}")
    if missing > 0:
        notes.append(f"miss {_percent(missing)}")
    suffix = f" ({', '.join(notes)})" if notes else ""
    return f"{name} {'-' if mean is None else number(mean)}{suffix}"


def _percent(share: float) -> str:
    if 0 < share < 0.01:
        return "<1%"
    return f"{100 * share:.0f}%"


def _value(metrics: Mapping[str, float], key: str, form: str) -> str:
    return form.format(metrics[key]) if key in metrics else ""
