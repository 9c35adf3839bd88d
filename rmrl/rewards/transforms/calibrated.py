"""calibrated: P(good) of the score, 0..1, by a map that `rmrl calibrate` made of labelled rows.

The map belongs to one judge with its prompt and its parser (`rmrl.rewards.calibration.digest`). On
any other reward it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rmrl.errors import ConfigError
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.transforms.probability_map import ProbabilityMap, read_map


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    file: str
    """JSON file that `rmrl calibrate` wrote."""

    example = "{kind: calibrated, file: runs/calibration/judge.json}"
    per_value = True

    def problems(self) -> list[str]:
        try:
            _ = self.map
        except ConfigError as error:
            return [f"file: {problem}" for problem in error.problems]
        return []

    @cached_property
    def map(self) -> ProbabilityMap:
        """The map, read once. Raises ConfigError where the file is none."""
        return read_map(self.file)

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        del rows
        return self.map.curve.apply(values_N)
