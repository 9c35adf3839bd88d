"""Size of the slices in which the output head computes logits. Imports no torch."""

SLICE_ELEMENTS = 2**24
"""Fewest logits computed at once, in elements (64 MiB of float32); on CPU the number itself."""
LARGEST_SLICE_ELEMENTS = 2**28
"""Most logits computed at once. Beyond about 1,700 positions with a vocabulary of 152k a matrix
product no longer gains from more."""
SLICE_BYTES = 12
"""Device memory per logit of a slice in the backward pass: itself and its gradient in half
precision, two numbers of float32."""
_SLICE_SHARE = 8
"""A slice takes one part in so many of the free device memory."""


def elements_within(free_bytes: int) -> int:
    """Size of a slice on a device with `free_bytes`: the largest power of two that takes an eighth
    of them at most, within SLICE_ELEMENTS and LARGEST_SLICE_ELEMENTS."""
    fitting = max(1, free_bytes // _SLICE_SHARE // SLICE_BYTES)
    power = 2 ** (fitting.bit_length() - 1)
    return min(max(power, SLICE_ELEMENTS), LARGEST_SLICE_ELEMENTS)
