"""metrics.jsonl -> one PNG: reward, every component, validation, KL and response length over the
steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from rmrl.telemetry import jsonl, names

COLUMNS = 3
LONGEST_TITLE = 36
_SMOOTHED_FROM = 10
"""Points from which a line is drawn pale below its running mean."""
RAW = "#9db8d9"
ACCENT = "#1f4e8c"
GREY = "#6b6b6b"
RED = "#b5382a"

Series = tuple[np.ndarray, np.ndarray]
"""Steps [N] and values [N]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One small chart. The first line is drawn raw and smoothed; more than one line gets a
    legend."""

    title: str
    lines: Mapping[str, Series]
    stacked: bool = False
    """The lines are shares of a whole, drawn as areas one upon the other."""
    missing: Series | None = None
    """Share of missing verdicts, 0..1; drawn in red on the right-hand side if it is ever above
    0."""
    best: tuple[float, float] | None = None
    """Step and value by which a run's best checkpoint was chosen, drawn as a star."""


def read_metrics(metrics_jsonl: Path) -> dict[str, Series]:
    """Return each metric's steps and finite values, by step. Lines of one step are merged; torn
    lines are skipped."""
    by_step: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in jsonl.read(metrics_jsonl):
        by_step[row["step"]].update(row)
    steps: dict[str, list[int]] = defaultdict(list)
    values: dict[str, list[float]] = defaultdict(list)
    for step in sorted(by_step):
        for key, value in by_step[step].items():
            if key != "step" and isinstance(value, int | float) and math.isfinite(value):
                steps[key].append(step)
                values[key].append(float(value))
    return {key: (np.asarray(steps[key]), np.asarray(values[key])) for key in values}


def draw_curves(metrics_jsonl: Path, out_png: Path, title: str = "") -> bool:
    """Draw the run so far, under the run's name `title`; `out_png` is replaced in one move.

    Returns False where there is nothing to draw yet. No file is written then.
    """
    if not metrics_jsonl.exists():
        return False
    series = read_metrics(metrics_jsonl)
    panels = choose_panels(series)
    if not panels:
        return False
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.6 * columns, 3.0 * rows), dpi=110, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    if title:
        figure.suptitle(_text(title), fontsize=12, fontweight="bold")
    _legend(figure, panels)
    steps = np.concatenate([steps for steps, _ in series.values()])
    margin = max(0.5, 0.02 * float(np.ptp(steps)))
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        # the same for all, so that panels can be compared
        axes.set_xlim(steps.min() - margin, steps.max() + margin)
        _draw(axes, panel)
    out_png.parent.mkdir(parents=True, exist_ok=True)
    fresh = out_png.with_name(f".{out_png.stem}.tmp.png")
    cast("Any", canvas).print_png(str(fresh))
    fresh.replace(out_png)
    return True


def choose_panels(series: Mapping[str, Series]) -> list[Panel]:
    """Return the panels with data, in reading order: reward, components, validation, KL, length."""
    panels = [Panel(title="reward (mean)", lines=_pick(series, names.REWARD_MEAN))]
    for name in names.component_names(series):
        lines = _pick(series, names.score_key(name, "mean"))
        missing = series.get(names.score_key(name, "missing"))
        panels.append(Panel(title=f"score: {name}", lines=lines, missing=missing))
    for name in names.validation_names(series):
        lines = _pick(series, name)
        best = names.best_of_all(series, name)
        # Where several responses were sampled, also the best of all, dashed.
        if best is not None:
            lines[best] = series[best]
        missing = series.get(f"{name}/missing")
        chosen: tuple[float, float] | None = None
        if names.BEST + name in series:
            chosen = series[f"{names.BEST}step"][1][-1], series[names.BEST + name][1][-1]
        panels.append(Panel(title=name, lines=lines, missing=missing, best=chosen))
    panels.append(Panel(title="KL to the reference", lines=_pick(series, names.REF_KL)))
    if names.REF_KL not in series:
        panels.append(Panel(title="KL of a step's update", lines=_pick(series, names.KL)))
    lengths = _pick(series, names.LENGTH_MEAN, names.LENGTH_MAX)
    panels.append(Panel(title="response length (tokens)", lines=lengths))
    panels.append(Panel(title="share of a step's time", lines=_time_shares(series), stacked=True))
    return [panel for panel in panels if panel.lines or _has_misses(panel)]


def _has_misses(panel: Panel) -> bool:
    return panel.missing is not None and bool(panel.missing[1].max() > 0)


def _time_shares(series: Mapping[str, Series]) -> dict[str, Series]:
    """Return stage -> its share of each step's seconds, 0..1. A step in which the stage was not
    timed counts 0."""
    if names.STEP_TIME not in series:
        return {}
    steps, seconds = series[names.STEP_TIME]
    shares: dict[str, Series] = {}
    for key in series:
        is_stage = key.startswith("time/") and key.endswith("_s") and key.count("/") == 1
        if not is_stage or key == names.STEP_TIME:
            continue
        timed = dict(zip(*series[key], strict=True))
        values = np.asarray([timed.get(step, 0.0) for step in steps]) / np.maximum(seconds, 1e-9)
        shares[key.removeprefix("time/").removesuffix("_s")] = (steps, values)
    return shares


def smooth(values: np.ndarray) -> np.ndarray:
    """Centred running mean over about a tenth of the points; at the ends over those points of the
    window that exist."""
    half = max(1, len(values) // 20)
    total = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first = np.maximum(at - half, 0)
    end = np.minimum(at + half + 1, len(values))
    return (total[end] - total[first]) / (end - first)


def _pick(series: Mapping[str, Series], *keys: str) -> dict[str, Series]:
    lines: dict[str, Series] = {}
    for key in keys:
        if key in series:
            label = key.rpartition("_")[2] if len(keys) > 1 else key
            lines[label] = series[key]
    return lines


def _legend(figure: Any, panels: Sequence[Panel]) -> None:
    """Explain the two colours of a line and the red areas, once for all panels."""
    points = 0
    for panel in panels:
        if not panel.stacked:
            points = max([points, *(len(steps) for steps, _ in panel.lines.values())])
    handles: list[Artist] = []
    if points >= _SMOOTHED_FROM:
        handles += [
            Line2D([], [], color=RAW, label="step"),
            Line2D([], [], color=ACCENT, linewidth=1.9, label="running mean"),
        ]
    if any(map(_has_misses, panels)):
        handles.append(Patch(color=RED, alpha=0.2, label="missing verdicts"))
    if handles:
        figure.legend(
            handles=handles,
            loc="outside lower right",
            ncols=len(handles),
            fontsize=8,
            frameon=False,
        )


def _draw(axes: Any, panel: Panel) -> None:
    if panel.stacked:
        _draw_stacked(axes, panel)
    else:
        for place, (label, (steps, values)) in enumerate(panel.lines.items()):
            if place == 0:
                _draw_main(axes, (steps, values), label)
                continue
            axes.plot(
                steps,
                values,
                color=GREY,
                linewidth=0.9,
                linestyle="--",
                marker=_marker(steps),
                markersize=3,
                label=_text(label),
            )
        if panel.best is not None:
            step, value = panel.best
            axes.plot(step, value, "*", color=ACCENT, markersize=11, label=f"best: step {step:.0f}")
        axes.grid(alpha=0.25)
        if len(panel.lines) > 1 or panel.best is not None:
            axes.legend(fontsize=7, frameon=False)
    axes.set_title(_text(panel.title), fontsize=10, loc="left", fontweight="bold")
    axes.set_xlabel("step", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.missing is not None and panel.missing[1].max() > 0:
        steps, share = panel.missing
        right = axes.twinx()
        right.fill_between(steps, 100 * share, color=RED, alpha=0.2, linewidth=0)
        right.plot(
            steps, 100 * share, color=RED, linewidth=0.6, marker=_marker(steps), markersize=2
        )
        right.set_ylim(0, 100)  # the whole range, so that a few misses look like a few
        right.set_yticks([0, 50, 100])
        right.set_ylabel("missing %", fontsize=8, color=RED)
        right.tick_params(labelsize=8, colors=RED)
        right.spines[["top"]].set_visible(False)


def _draw_stacked(axes: Any, panel: Panel) -> None:
    steps = next(iter(panel.lines.values()))[0]
    shares = [100 * values for _, values in panel.lines.values()]
    if len(steps) == 1:  # an area of one step has no width
        steps = np.asarray([steps[0] - 0.4, steps[0] + 0.4])
        shares = [np.repeat(values, 2) for values in shares]
    axes.stackplot(steps, shares, labels=[_text(label) for label in panel.lines], alpha=0.85)
    axes.set_ylim(0, 100)
    axes.set_ylabel("%", fontsize=8)
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_main(axes: Any, line: Series, label: str) -> None:
    """Draw the line itself, pale where a smoothed one lies over it; points are marked while they
    are few enough to tell apart."""
    steps, values = line
    smoothed = len(values) >= _SMOOTHED_FROM and not label.startswith(names.VALIDATION)
    axes.plot(
        steps,
        values,
        color=RAW if smoothed else ACCENT,
        linewidth=1.0,
        marker=_marker(steps),
        markersize=3,
        label=_text(label),
    )
    trend = smooth(values) if smoothed else values
    if smoothed:
        axes.plot(steps, trend, color=ACCENT, linewidth=1.9)
    ends = dict.fromkeys(f"{value:.3g}" for value in (trend[0], trend[-1]))
    axes.set_title(" \u2192 ".join(ends), fontsize=9, loc="right", color=ACCENT)


def _marker(steps: np.ndarray) -> str:
    if len(steps) <= 30:
        return "o"
    return ""


def _text(words: str) -> str:
    """Shorten long names in the middle; escape dollar signs, which would start a formula."""
    if len(words) > LONGEST_TITLE:
        words = f"{words[:14]}...{words[17 - LONGEST_TITLE :]}"
    return words.replace("$", r"\$")
