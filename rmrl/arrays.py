"""Data classes with arrays: conversion and equality."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np


def tokens_as_arrays(sample: Any) -> None:
    """Convert a frozen sample's `token_ids`, `logprobs` and `mask` from other sequences to arrays.
    An object per number would take 32 bytes and more, and every process that the sample passes
    through would create it again."""
    for name, dtype in (("token_ids", np.int32), ("logprobs", np.float32), ("mask", np.bool_)):
        values = getattr(sample, name, None)
        if values is not None:
            object.__setattr__(sample, name, np.asarray(values, dtype=dtype))


def same_fields(first: Any, second: Any) -> bool:
    """Return whether two samples are equal. Comparing array tuples would raise."""
    for each in fields(first):
        one = getattr(first, each.name)
        other = getattr(second, each.name)
        if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
            if not np.array_equal(one, other):
                return False
        elif one != other:
            return False
    return True
