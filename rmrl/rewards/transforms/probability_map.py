"""The stored map of one reward: score -> P(good), as JSON.

    {"version": 2, "method": "isotonic", "points": [[score, P], ...],
     "reward": {"name": ..., "kind": ..., "digest": {...}}, "threshold": P,
     "folds": [{"method": ..., "points": ...}, ...], "verdicts": {...}, "figures": {...}}

Method platt has {"slope": ..., "intercept": ...} in place of the points. Applying a map needs numpy
alone.

The curve is of all labelled responses, so that its verdicts on them would look better than they
are. Verdicts are therefore those of the folds' curves, each fitted without a part of the prompts: a
labelled response has that of the curve which has not seen it, any other the mean of all.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.config.numbers import is_number, is_pair
from rmrl.errors import ConfigError

METHODS = ("isotonic", "platt")
_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Verdicts "P(good) >= threshold" on the rows with a label, each by a curve that was fitted
    without it: counts by label."""

    good: int
    """Rows that people call good."""
    good_accepted: int
    """Rows of those that the reward calls good too."""
    bad: int
    bad_accepted: int
    good_independent: float | None = None
    """Independent rows that the good ones tell as much as, see `clusters`. None: all are."""
    bad_independent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """P(good) over the score. It never falls."""

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

    def to_json(self) -> dict[str, Any]:
        """Return its fields in a map's file."""
        if self.method == "isotonic":
            return {"method": self.method, "points": list(map(list, self.points))}
        return {"method": self.method, "slope": self.slope, "intercept": self.intercept}


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
    folds: tuple[Curve, ...]
    """Curves for parts of the labelled rows, which give the verdicts."""
    verdicts: Verdicts
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Results of `rmrl calibrate`."""

    def accepted(self, scores: np.ndarray) -> np.ndarray:
        """Return the share of the folds' curves by which a score's verdict is good, float64 0 .. 1,
        of scores of any shape."""
        verdicts = [fold.apply(scores) >= self.threshold for fold in self.folds]
        return np.mean(verdicts, axis=0)

    def to_json(self) -> dict[str, Any]:
        """Return the content that `parse_map` reads."""
        return {
            "version": _VERSION,
            **self.curve.to_json(),
            "reward": {"name": self.reward, "kind": self.kind, "digest": dict(self.digest)},
            "threshold": self.threshold,
            "folds": [fold.to_json() for fold in self.folds],
            "verdicts": asdict(self.verdicts),
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
    digest: dict[str, str] = {
        str(part): str(value) for part, value in content["reward"]["digest"].items()
    }
    folds = tuple(map(_curve, content["folds"]))
    if not folds:
        raise ValueError("folds: none")
    return ProbabilityMap(
        curve=_curve(content),
        reward=str(content["reward"]["name"]),
        kind=str(content["reward"]["kind"]),
        digest=digest,
        threshold=_finite(content, "threshold"),
        folds=folds,
        verdicts=_verdicts(content["verdicts"]),
        figures=dict(content["figures"]),
    )


def _verdicts(content: Mapping[str, Any]) -> Verdicts:
    independent: dict[str, float | None] = {}
    for name in ("good_independent", "bad_independent"):
        independent[name] = None
        if content[name] is not None:
            independent[name] = _finite(content, name)
    return Verdicts(
        good=int(content["good"]),
        good_accepted=int(content["good_accepted"]),
        bad=int(content["bad"]),
        bad_accepted=int(content["bad_accepted"]),
        **independent,
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
