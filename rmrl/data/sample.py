"""data.sample: some rows from all files, drawn at random, without holding any of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.rows import count_rows


def sampled_rows(settings: ScoreDataConfig, paths: Sequence[Path]) -> list[np.ndarray | None]:
    """Return for each file a bool per row, whether it is among the `data.sample` rows that are
    drawn with `data.seed` from the first `data.max_rows`; None for all files without a sample.

    Equal files and settings give equal rows. Raises DataError where a file cannot be read.
    """
    if settings.sample is None or settings.sample < 1:
        # The check of the configuration refuses such a number.
        return [None] * len(paths)
    counts: list[int] = []
    for path in paths:
        status = path.stat()
        counts.append(_count(path, status.st_size, status.st_mtime_ns))
    most = sum(counts)
    if settings.max_rows >= 0:
        most = min(most, settings.max_rows)
    numbers = random.Random(settings.seed).sample(range(most), min(settings.sample, most))
    chosen_N = np.zeros(sum(counts), dtype=bool)
    chosen_N[numbers] = True
    return [*np.split(chosen_N, np.cumsum(counts)[:-1])]


@lru_cache(maxsize=256)
def _count(path: Path, size: int, mtime_ns: int) -> int:
    """Return how many rows a file has. The other arguments tell its states apart."""
    del size, mtime_ns
    return count_rows(path)
