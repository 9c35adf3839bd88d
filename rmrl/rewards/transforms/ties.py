"""Ties: scores that count as equal, and the order of the others."""

from __future__ import annotations

import numpy as np

_SMALLEST = 1e-6
_UNITS = 4 * float(np.finfo(np.float32).eps)


def rounding_floor(magnitude: np.ndarray | float) -> np.ndarray:
    """Differences up to this are rounding, not contrast: 4 units in the last place of a float32
    with that size, at least 1e-6.

    float32 because models and servers compute in it or coarser; 1e-6 as in the advantage
    estimators, so that what is constant here is constant there.
    """
    return np.maximum(_UNITS * np.abs(magnitude), _SMALLEST)


def consecutive(group_ids_B: np.ndarray) -> np.ndarray:
    """0 .. number of groups - 1 for each row, whatever the ids are; int64."""
    return np.unique(group_ids_B, return_inverse=True)[1].reshape(-1).astype(np.int64)


def refined(class_B: np.ndarray, values_B: np.ndarray, tolerance_B: np.ndarray) -> np.ndarray:
    """Split each class by its values: 0, 1, ... in the order of (class, value), int64.

    Neighbours in that order that differ by no more than the tolerance share a class. -inf is a
    value like any other.
    """
    order = np.lexsort((values_B, class_B))
    # -inf minus -inf is no gap.
    with np.errstate(invalid="ignore"):
        gaps = np.diff(values_B[order]) > tolerance_B[order][1:]
    borders = (np.diff(class_B[order]) != 0) | gaps
    out_B = np.zeros(len(values_B), dtype=np.int64)
    out_B[order[1:]] = np.cumsum(borders)
    return out_B


def largest_of_group(values_B: np.ndarray, group_B: np.ndarray) -> np.ndarray:
    """Each row's group maximum; `group_B` as from `consecutive`, values not negative."""
    largest = np.zeros(int(group_B.max(initial=-1)) + 1)
    np.maximum.at(largest, group_B, values_B)
    return largest[group_B]
