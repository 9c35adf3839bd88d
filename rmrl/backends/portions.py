"""Stored tensors that are read together: as many as fit, so that memory holds one group and reading
is not done one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

AT_ONCE_BYTES = 2**30
"""Maximum bytes of tensors read together; memory holds one such portion, and its result."""


def portions(
    names: Iterable[str],
    *,
    stored_in: Callable[[str], str],
    size: Callable[[str], int],
    at_once: int = AT_ONCE_BYTES,
) -> Iterator[list[str]]:
    """Yield `names` in their order, cut so that the stored tensors of a portion have at most
    `at_once` bytes. A single larger tensor is a portion by itself.

    `stored_in`: the stored tensor that contains a name. One may contain several. `size`: a stored
    tensor's bytes, which counts once in a portion.
    """
    portion: list[str] = []
    tensors: set[str] = set()
    for name in names:
        tensor = stored_in(name)
        if portion and sum(map(size, tensors | {tensor})) > at_once:
            yield portion
            portion = []
            tensors = set()
        portion.append(name)
        tensors.add(tensor)
    if portion:
        yield portion
