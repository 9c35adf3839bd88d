"""Length rules, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from rmrl.rewards.rules.verifiers.length import soft_overlong, within


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0.0), (80, 0.0), (85, -0.25), (90, -0.5), (100, -1.0), (500, -1.0)]
)
def test_soft_overlong(length, expected):
    # limit 100, buffer 20: falls from 0 at 80 to -1 at 100, 0.05 per token
    assert soft_overlong(length, limit=100, buffer=20) == pytest.approx(expected)


def test_soft_overlong_needs_a_buffer():
    with pytest.raises(ValueError, match="buffer is 0"):
        soft_overlong(1, limit=10, buffer=0)


def test_within():
    assert [within(n, shortest=2, longest=4) for n in (1, 2, 4, 5)] == [0.0, 1.0, 1.0, 0.0]
