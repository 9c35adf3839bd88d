"""The reliability curve as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def draw_reliability(numbers: Mapping[str, Any], path: Path) -> bool:
    """Write the curves for all judges that have one. Return whether there is any.

    Raises OSError where the file cannot be written.
    """
    curves: dict[str, Any] = {}
    for name, judge in numbers["judges"].items():
        calibration = judge.get("calibration") or judge.get("values", {}).get("calibration")
        if calibration:
            curves[name] = calibration
    if not curves:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1)
    for name, calibration in curves.items():
        points = [(point["confidence"], point["frequency"]) for point in calibration["curve"]]
        label = f"{name} (ECE {calibration['ece']:.3f})"
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="share that is right")
    axes.legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=120)
    return True
