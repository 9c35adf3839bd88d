"""Digests for plain values. Caches, calibrations, checkpoints and resumed jobs compare them with
those that they stored, so a value's text never changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any


def canonical_json(
    value: Any, *, default: Callable[[Any], Any] | None = None, compact: bool = False
) -> bytes:
    """Return one text for equal values: ASCII, keys in order. `default` replaces what JSON does not
    have. Without it such a value raises TypeError."""
    separators = (",", ":") if compact else None
    return json.dumps(value, default=default, sort_keys=True, separators=separators).encode()


def digest(value: Any, *, default: Callable[[Any], Any] | None = None) -> str:
    """Return `canonical_json`'s sha256, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value, default=default)).hexdigest()
