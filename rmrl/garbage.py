"""Garbage collection while requests are answered."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 10_000
"""Objects that are made between two collections. A request makes some hundred, nearly all without
cycles."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect seldom in the block, and look no more at what was there before: modules and engines
    stay until the end."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
