"""Rewards of the length alone. A length is in the unit of the limits: tokens, words or
characters."""

from __future__ import annotations


def soft_overlong(length: int, *, limit: int, buffer: int) -> float:
    """DAPO's soft overlong punishment, equation 13 of https://arxiv.org/abs/2503.14476, in [-1, 0].

    0 up to `limit - buffer`, then falling linearly to -1 at `limit`, -1 beyond. ValueError unless 0
    < buffer <= limit.
    """
    if not 0 < buffer <= limit:
        raise ValueError(f"buffer is {buffer} and limit {limit}; 0 < buffer <= limit is needed")
    return max(-1.0, min(0.0, (limit - buffer - length) / buffer))


def within(length: int, *, shortest: int = 0, longest: int) -> float:
    """1.0 if shortest <= length <= longest, else 0.0."""
    return float(shortest <= length <= longest)
