"""Bounds of times: the best of some measurements counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bounds import TIMES, Bound, run


@pytest.mark.parametrize(
    ("seconds", "measured", "status"),
    [
        ([0.5], 1, 0),
        ([9.0, 8.0, 0.9], 3, 0),
        ([3.0, 2.0, 1.0, 2.0, 3.0], TIMES, 1),
    ],
)
def test_the_best_time_counts(
    tmp_path: Path, seconds: list[float], measured: int, status: int
) -> None:
    rest = list(seconds)
    bound = Bound("a thing", lambda: rest.pop(0), 1.0)
    assert run([bound], tmp_path / "record") == status
    assert len(seconds) - len(rest) == measured
    assert (tmp_path / "record").read_text() == (
        f'{{"name": "a thing", "seconds": {min(seconds)}}}\n'
    )
