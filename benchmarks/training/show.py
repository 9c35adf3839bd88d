"""The results as lines on a terminal and as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Results = Mapping[str, Any]
_COLOURS = {
    "generate": "#4477aa",
    "logprobs": "#66ccee",
    "update": "#228833",
    "publish": "#ccbb44",
    "score": "#aa3377",
    "other": "#bbbbbb",
}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest, largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def told(found: Mapping[str, float]) -> str:
    """Median [smallest, largest]."""
    return f"{found['median']:.3g} [{found['min']:.3g}, {found['max']:.3g}]"


def table(results: Results) -> str:
    """One line per result."""
    rows: list[tuple[str, str]] = []
    if "sides" in results:
        rows += [
            (f"{side}: seconds per step; tokens per second", _pace(runs))
            for side, runs in results["sides"].items()
        ]
        rows += [(f"{side}: peak memory, GiB", told(spread([run["peak_bytes"] / 2**30 for run in runs])))
                 for side, runs in results["sides"].items()]  # fmt: skip
        rows += [
            (f"TRL ({results['fastest']}) / rmrl, {name.replace('_', ' ')}", told(found))
            for name, found in results["ratios"].items()
        ]
        rows.append(
            ("share of rmrl's step in which no model works", told(results["not_model_share"]))
        )
    if "padding" in results:
        rows += [(f"{name.replace('_', ' ')} / bucketed, seconds of an update", told(found))
                 for name, found in results["padding"]["over_bucketed"].items()]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _pace(runs: Sequence[Results]) -> str:
    seconds = spread([statistics.mean(run["step_s"]) for run in runs])
    return (
        f"{told(seconds)};"
        f" {told(spread([sum(run['tokens']) / sum(run['step_s']) for run in runs]))}"
    )


def draw(results: Results, path: Path) -> None:
    """Two panels: where a step's time goes on each side, and updates on padded micro-batches."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (steps, padding) = plt.subplots(
        1, 2, figsize=(10, 4), layout="constrained", width_ratios=[3, 2]
    )
    _draw_steps(steps, results["sides"])
    _draw_padding(padding, results["padding"]["ways"])
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_steps(axes: Any, sides: Mapping[str, Sequence[Results]]) -> None:
    left = dict.fromkeys(sides, 0.0)
    for phase, colour in _COLOURS.items():
        label: str | None = phase
        for side, runs in sides.items():
            width = statistics.median(
                [statistics.mean(run["phases_s"].get(phase, [0.0])) for run in runs]
            )
            axes.barh(side, width, left=left[side], color=colour, label=label)
            left[side] += width
            label = None
    axes.invert_yaxis()
    axes.set_xlabel("seconds of a step (TRL's update: all but sampling)")
    axes.legend(fontsize=8, ncols=2)
    axes.set_title("a GRPO step on CPU", fontsize=10)


def _draw_padding(axes: Any, ways: Mapping[str, Results]) -> None:
    names = list(ways)
    medians = [statistics.median(ways[name]["update_s"]) for name in names]
    axes.bar(
        [name.replace("_", "\n") for name in names],
        medians,
        color=["#228833", "#ccbb44", "#ee6677"],
    )
    axes.set_ylabel("seconds of an update")
    axes.set_title("the same rows, cut in three ways", fontsize=10)
