"""metrics.jsonl -> one PNG: reward, every component, validation, KL and response length over the steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rmrl.telemetry import jsonl, names

COLUMNS = 3
LONGEST_TITLE = 36
RAW, ACCENT, GREY, RED = "#9db8d9", "#1f4e8c", "#6b6b6b", "#b5382a"

Series = tuple[np.ndarray, np.ndarray]
"""Steps [N] and values [N]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One small chart. The first line is drawn raw and smoothed; more than one line gets a legend."""

    title: str
    lines: Mapping[str, Series]
    missing: Series | None = None
    """Share of missing verdicts, 0..1; drawn in red on the right-hand side if it is ever above 0."""


def read_metrics(metrics_jsonl: Path) -> dict[str, Series]:
    """Each metric's steps and finite values, by step. Lines of one step are merged; torn lines are passed over."""
    by_step: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in jsonl.read(metrics_jsonl):
        by_step[row["step"]].update(row)
    columns: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for step in sorted(by_step):
        for key, value in by_step[step].items():
            if key != "step" and isinstance(value, int | float) and math.isfinite(value):
                columns[key].append((step, float(value)))
    return {key: (np.asarray([s for s, _ in pairs]), np.asarray([v for _, v in pairs])) for key, pairs in columns.items()}


def draw_curves(metrics_jsonl: Path, out_png: Path) -> bool:
    """Draw the run so far; `out_png` is replaced in one move. False: there is nothing to draw yet, no file is written."""
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
    steps = np.concatenate([steps for steps, _ in series.values()])
    margin = max(0.5, 0.02 * float(np.ptp(steps)))
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.set_xlim(steps.min() - margin, steps.max() + margin)  # the same for all, so that panels can be compared
        _draw(axes, panel)
    out_png.parent.mkdir(parents=True, exist_ok=True)
    fresh = out_png.with_name(f".{out_png.stem}.tmp.png")
    cast("Any", canvas).print_png(str(fresh))
    fresh.replace(out_png)
    return True


def choose_panels(series: Mapping[str, Series]) -> list[Panel]:
    """What is worth a panel, in reading order: reward, components, validation, KL, length."""
    panels = [Panel(title="reward (mean)", lines=_pick(series, names.REWARD_MEAN))]
    for name in names.component_names(series):
        missing = series.get(names.score_key(name, "missing"))
        panels.append(Panel(title=f"score: {name}", lines=_pick(series, names.score_key(name, "mean")), missing=missing))
    panels += [_validation(series, name) for name in names.validation_names(series)]
    panels.append(Panel(title="KL to the reference", lines=_pick(series, names.REF_KL)))
    if names.REF_KL not in series:
        panels.append(Panel(title="KL of a step's update", lines=_pick(series, names.KL)))
    panels.append(Panel(title="response length (tokens)", lines=_pick(series, names.LENGTH_MEAN, names.LENGTH_MAX)))
    return [panel for panel in panels if panel.lines or (panel.missing is not None and panel.missing[1].max() > 0)]


def _validation(series: Mapping[str, Series], name: str) -> Panel:
    """The mean; where several responses were sampled also the best of all, dashed."""
    lines, best = _pick(series, name), names.best_of_all(series, name)
    return Panel(title=name, lines=lines | ({} if best is None else {best: series[best]}), missing=series.get(f"{name}/missing"))


def smooth(values: np.ndarray) -> np.ndarray:
    """Centred running mean over about a tenth of the points; at the ends over those points of the window that exist."""
    half = max(1, len(values) // 20)
    total = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first, end = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    return (total[end] - total[first]) / (end - first)


def _pick(series: Mapping[str, Series], *keys: str) -> dict[str, Series]:
    return {key.rpartition("_")[2] if len(keys) > 1 else key: series[key] for key in keys if key in series}


def _draw(axes: Any, panel: Panel) -> None:
    for place, (label, (steps, values)) in enumerate(panel.lines.items()):
        if place == 0:
            _draw_main(axes, (steps, values), label)
        else:
            axes.plot(steps, values, color=GREY, linewidth=0.9, linestyle="--", marker=_marker(steps), markersize=3, label=_text(label))
    axes.set_title(_text(panel.title), fontsize=10, loc="left", fontweight="bold")
    axes.set_xlabel("step", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if len(panel.lines) > 1:
        axes.legend(fontsize=7, frameon=False)
    if panel.missing is not None and panel.missing[1].max() > 0:
        _draw_missing(axes.twinx(), panel.missing)


def _draw_main(axes: Any, line: Series, label: str) -> None:
    """The line itself, pale where a smoothed one lies over it; points are marked while they can be told apart."""
    steps, values = line
    smoothed = len(values) >= 10 and not label.startswith(names.VALIDATION)
    axes.plot(steps, values, color=RAW if smoothed else ACCENT, linewidth=1.0, marker=_marker(steps), markersize=3, label=_text(label))
    trend = smooth(values) if smoothed else values
    if smoothed:
        axes.plot(steps, trend, color=ACCENT, linewidth=1.9)
    ends = dict.fromkeys(f"{value:.3g}" for value in (trend[0], trend[-1]))
    axes.set_title(" \u2192 ".join(ends), fontsize=9, loc="right", color=ACCENT)


def _marker(steps: np.ndarray) -> str:
    return "o" if len(steps) <= 30 else ""


def _draw_missing(axes: Any, missing: Series) -> None:
    steps, share = missing
    axes.fill_between(steps, 100 * share, color=RED, alpha=0.2, linewidth=0)
    axes.plot(steps, 100 * share, color=RED, linewidth=0.6, marker=_marker(steps), markersize=2)
    axes.set_ylim(0, 100)  # the whole range, so that a few misses look like a few
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel("missing %", fontsize=8, color=RED)
    axes.tick_params(labelsize=8, colors=RED)
    axes.spines[["top"]].set_visible(False)


def _text(words: str) -> str:
    """Long names lose their middle; a dollar sign would start a formula."""
    short = words if len(words) <= LONGEST_TITLE else f"{words[:14]}...{words[17 - LONGEST_TITLE :]}"
    return short.replace("$", r"\$")
