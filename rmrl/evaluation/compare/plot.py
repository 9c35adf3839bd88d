"""Each response's two rewards as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rmrl.evaluation.compare.check_comparison import NAMES
from rmrl.evaluation.compare.responses import Responses

_MOST_POINTS = 5000


def draw(responses: Responses, path: Path) -> None:
    """Write a picture with up to 5000 evenly spread responses, coloured by their labels. Raises
    OSError where the file cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import
    from matplotlib.figure import Figure

    step = max(1, len(responses) // _MOST_POINTS)
    few = responses.select(np.arange(0, len(responses), step))
    figure = Figure(figsize=(5, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    kinds = {
        "without a label": np.isnan(few.good_N),
        "good": few.good_N == 1,
        "bad": few.good_N == 0,
    }
    for label, mask_N in kinds.items():
        if mask_N.any():
            first, second = few.rewards_AN[:, mask_N]
            axes.scatter(first, second, s=8, alpha=0.4, label=label)
    axes.set(xlabel=f"reward of {NAMES[0]}", ylabel=f"reward of {NAMES[1]}")
    if not np.isnan(few.good_N).all():
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
