"""scale, clip, sigmoid, piecewise: numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rmrl.rewards.transforms.piecewise import piecewise
from tests.rewards.transforms.test_chain import run

CURVE = {"kind": "piecewise", "points": [[0, 0], [0.5, 0.2], [1, 1]]}
BEND = {"kind": "piecewise", "points": [[0, 0.2], [0.5, 0.2], [1, 1]], "shape": "exponential"}
HALF = 0.2 + 0.8 * (math.exp(1.5) - 1) / (math.exp(3) - 1)
"""Halfway along the bend."""


@pytest.mark.parametrize(
    ("raw", "values", "expected"),
    [
        ({"kind": "scale", "factor": -0.5, "offset": 1}, [2.0, -4.0], [0.0, 3.0]),
        ({"kind": "clip", "low": -1, "high": 2}, [-3.0, 0.5, 9.0], [-1.0, 0.5, 2.0]),
        ({"kind": "clip", "low": 0}, [-3.0, 9.0], [0.0, 9.0]),
        # 1 / (1 + e^-1) at one temperature above the center
        (
            {"kind": "sigmoid", "center": 3, "temperature": 2},
            [3.0, 5.0, 1.0],
            [0.5, 0.731058579, 0.268941421],
        ),
        ("sigmoid", [1e300, -1e300], [1.0, 0.0]),
        (CURVE, [-1.0, 0.25, 0.5, 0.75, 2.0], [0.0, 0.1, 0.2, 0.6, 1.0]),
        (BEND, [-1.0, 0.0, 0.5, 0.75, 1.0, 2.0], [0.2, 0.2, 0.2, round(HALF, 9), 1.0, 1.0]),
    ],
)
def test_values_by_hand(raw: Any, values: list[float], expected: list[float]):
    assert run(raw, values) == expected


def test_a_negative_rate_rises_at_once():
    late = piecewise(np.asarray([0.5]), [[0, 0], [1, 1]], "exponential", rate=2.0)
    early = piecewise(np.asarray([0.5]), [[0, 0], [1, 1]], "exponential", rate=-2.0)
    assert float(late[0]) == pytest.approx(0.268941421)  # (e - 1) / (e^2 - 1) = 1 / (e + 1)
    assert float(early[0]) == pytest.approx(0.731058579)
    typed = {"kind": "piecewise", "points": [[0, 0], [1, 1]], "shape": "exponential", "rate": -2}
    assert run(typed, [0.5]) == [0.731058579]


@pytest.mark.parametrize("shape", ["linear", "exponential"])
def test_a_curve_passes_through_its_points_and_keeps_nan(shape: str):
    points = [[-1.0, 2.0], [0.0, -3.0], [4.0, 0.0]]
    out = piecewise(np.asarray([-1.0, 0.0, 4.0, np.nan]), points, shape)
    np.testing.assert_allclose(out, [2.0, -3.0, 0.0, np.nan], atol=1e-15)
