"""The stored map of one reward: score -> P(good), as JSON.

    {"version": 1, "method": "isotonic", "points": [[score, P], ...],
     "reward": {"name": ..., "kind": ..., "digest": {...}}, "threshold": P, "figures": {...}}

Method platt has {"slope": ..., "intercept": ...} in place of the points. Applying a map needs numpy
alone.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.config.numbers import is_number, is_pair
from rmrl.errors import ConfigError

METHODS = ("isotonic", "platt")
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Verdicts "P(good) >= threshold" of the map on the rows with a label that it was fitted to:
    counts by label."""

    good: int
    """Rows that people call good."""
    good_accepted: int
    """Rows of those that the reward calls good too."""
    bad: int
    bad_accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """P(good) over the score; it never falls."""

    method: str
    """isotonic: straight lines between `points`, constant outside; platt: 1 / (1 + exp(-(slope *
    score + intercept)))."""
    points: tuple[tuple[float, float], ...] = ()
    slope: float = 0.0
    intercept: float = 0.0

    def apply(self, scores: np.ndarray) -> np.ndarray:
        """Return P(good), 0 .. 1, of scores, an array of any shape; NaN stays NaN."""
        values = np.asarray(scores, dtype=np.float64)
        if self.method == "isotonic":
            xs, ys = np.asarray(self.points, dtype=np.float64).T
            return np.interp(values, xs, ys)
        # exp of minus the size never overflows.
        x = self.slope * values + self.intercept
        small = np.exp(-np.abs(x))
        return np.where(x >= 0, 1.0, small) / (1.0 + small)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityMap:
    """The curve of one reward, and how far its verdicts can be trusted."""

    curve: Curve
    reward: str
    """Name of the reward whose scores it maps."""
    kind: str
    digest: Mapping[str, str]
    """See `rmrl.rewards.calibration.digest`."""
    threshold: float
    """P(good) from which the reward's verdict counts as good."""
    verdicts: Verdicts
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Results of `rmrl calibrate`."""

    def accepted(self, scores: np.ndarray) -> np.ndarray:
        """Return whether the reward's verdict is good, bool, of scores of any shape."""
        return self.curve.apply(scores) >= self.threshold

    def to_json(self) -> dict[str, Any]:
        """Return the content that `parse_map` reads."""
        curve = self.curve
        content: dict[str, Any] = {"version": _VERSION, "method": curve.method}
        if curve.method == "isotonic":
            content["points"] = list(map(list, curve.points))
        else:
            content |= {"slope": curve.slope, "intercept": curve.intercept}
        reward = {"name": self.reward, "kind": self.kind, "digest": dict(self.digest)}
        verdicts = {
            "good": self.verdicts.good,
            "good_accepted": self.verdicts.good_accepted,
            "bad": self.verdicts.bad,
            "bad_accepted": self.verdicts.bad_accepted,
        }
        return {
            **content,
            "reward": reward,
            "threshold": self.threshold,
            "verdicts": verdicts,
            "figures": dict(self.figures),
        }


def read_map(path: str) -> ProbabilityMap:
    """Read a map that `rmrl calibrate` wrote. Raises ConfigError where the file is none."""
    try:
        content = json.loads(Path(path).expanduser().read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} cannot be read as a calibration ({error}); give a file that rmrl calibrate"
            " wrote"
        ) from error
    try:
        return parse_map(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{path} is no calibration of this version ({type(error).__name__}: {error}); make it"
            " anew with rmrl calibrate"
        ) from error


def parse_map(content: Any) -> ProbabilityMap:
    """Return the map of a JSON value. Raises KeyError, TypeError, ValueError or AttributeError for
    any other value."""
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']}, this is {_VERSION}")
    digest: dict[str, str] = {}
    for part, value in content["reward"]["digest"].items():
        digest[str(part)] = str(value)
    counts = {name: int(value) for name, value in content["verdicts"].items()}
    return ProbabilityMap(
        curve=_curve(content),
        reward=str(content["reward"]["name"]),
        kind=str(content["reward"]["kind"]),
        digest=digest,
        threshold=_finite(content, "threshold"),
        verdicts=Verdicts(**counts),
        figures=dict(content["figures"]),
    )


def _curve(content: Mapping[str, Any]) -> Curve:
    method = content["method"]
    if method == "platt":
        slope = _finite(content, "slope")
        if slope <= 0:
            raise ValueError(f"slope {slope} is not above 0")
        return Curve(method=method, slope=slope, intercept=_finite(content, "intercept"))
    if method != "isotonic":
        raise ValueError(f"method {method!r} is none of {', '.join(METHODS)}")
    points: list[tuple[float, float]] = []
    for point in content["points"]:
        if not is_pair(point):
            raise ValueError(f"points: {point!r} is no [score, probability]")
        points.append((float(point[0]), float(point[1])))
    if len(points) < 2:
        raise ValueError("points: fewer than two")
    for (x0, p0), (x1, p1) in itertools.pairwise(points):
        if x1 <= x0 or p1 < p0:
            raise ValueError("points: scores or probabilities fall")
    if points[0][1] < 0 or points[-1][1] > 1:
        raise ValueError("points: a probability outside 0..1")
    return Curve(method=method, points=tuple(points))


def _finite(content: Mapping[str, Any], name: str) -> float:
    value = content[name]
    if not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{name}: {value!r} is no finite number")
    return float(value)
