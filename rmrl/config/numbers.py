"""Checks on single values as a user typed them."""

from __future__ import annotations

import math
from typing import Any, TypeGuard


def is_number(value: Any) -> TypeGuard[float]:
    """Whether this is a finite int or float; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_pair(value: Any) -> TypeGuard[tuple[float, float]]:
    """Whether this is a list or tuple with two finite numbers."""
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(is_number, value))
