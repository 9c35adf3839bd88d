"""Independent responses that those to the same prompts tell as much as."""

from __future__ import annotations

import numpy as np
import pytest

from rmrl.rewards.calibration.clusters import independent_count


def test_the_count_by_hand() -> None:
    """p = 1/2; residuals of the three prompts 1, 0, -1, so that v = 3/2 * 2 / 36 = 1/12, and
    n = 1/4 / (1/12) = 3."""
    values_N = np.asarray([1, 1, 1, 0, 0, 0])
    assert independent_count(values_N, np.asarray([0, 0, 1, 1, 2, 2])) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("values", "prompts", "expected"),
    [
        ([1, 0, 1], [4, 2, 9], 3.0),  # one response each
        ([1, 0, 1], [4, 4, 4], 3.0),  # a single prompt
        ([1, 1, 1, 1], [0, 0, 1, 1], 2.0),  # nothing shows how much they agree
        ([1, 0, 1, 0], [0, 0, 1, 1], 4.0),  # every prompt has the same share
        ([1, 1, 0, 0], [0, 0, 1, 1], 1.0),  # v = 2 * 2 / 16, as much as one tells
    ],
)
def test_counts_of_special_cases(values: list[int], prompts: list[int], expected: float) -> None:
    count = independent_count(np.asarray(values, dtype=np.float64), np.asarray(prompts))
    assert count == pytest.approx(expected)


def test_responses_without_anything_in_common_are_about_independent() -> None:
    draw = np.random.default_rng(3)
    values_N = (draw.random(4000) < 0.4).astype(np.float64)
    assert independent_count(values_N, np.repeat(np.arange(500), 8)) > 3200
