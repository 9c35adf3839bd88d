"""How long a test waits.

A wait that ends well costs nothing while it is long, and fails on a machine that stood still for a
moment while it is short. Two words say which one a wait is: `PATIENCE_S` where what is waited for
comes, `expires(0.3)` where it never does. `tests/test_clocks.py` holds every test to them.
"""

from __future__ import annotations

PATIENCE_S = 60.0
"""Seconds to wait for what comes. A test that needs them all has failed."""


def expires(seconds: float) -> float:
    """Return `seconds` as a patience that is meant to run out: what is waited for never comes, or
    comes later than any machine stands still (30 s and more)."""
    return seconds
