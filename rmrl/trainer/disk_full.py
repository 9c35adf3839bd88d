"""Telling a full disk from other failures, whatever library ran into it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

LITTLE_BYTES = 2**20
"""A failed write with less than this left on the disk is taken for a full disk."""


def is_disk_full(error: BaseException, folder: Path) -> bool:
    """Whether `error`, raised while writing below `folder`, came from a full disk or quota.

    Libraries wrap the operating system's error (torch.save keeps neither its number nor its words),
    hence three signs: the number, the words, and, for errors of writing libraries, the space left.
    """
    chain = list(_chain(error))
    if any(isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT) for e in chain):
        return True
    if any(
        "no space left on device" in str(e).lower() or "disk quota exceeded" in str(e).lower()
        for e in chain
    ):
        return True
    return (
        any(isinstance(e, OSError | RuntimeError) for e in chain)
        and shutil.disk_usage(folder).free < LITTLE_BYTES
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__
