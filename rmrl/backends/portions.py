"""Which stored tensors are read together: as many as fit, so that memory holds one portion and
reading is not done one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

AT_ONCE_BYTES = 2**30
"""Tensors read together; memory holds one such portion, and what it becomes."""


def portions(
    names: Iterable[str],
    *,
    stored_in: Callable[[str], str],
    size: Callable[[str], int],
    at_once: int = AT_ONCE_BYTES,
) -> Iterator[list[str]]:
    """`names` in their order, cut where the tensors that hold them pass `at_once` bytes; one larger
    tensor is a portion by itself.

    `stored_in`: the tensor that holds a name, perhaps several. `size`: bytes of such a tensor,
    which counts once in a portion.
    """
    portion: list[str] = []
    held: set[str] = set()
    for name in names:
        tensor = stored_in(name)
        if portion and sum(map(size, held | {tensor})) > at_once:
            yield portion
            portion, held = [], set()
        portion.append(name)
        held.add(tensor)
    if portion:
        yield portion
