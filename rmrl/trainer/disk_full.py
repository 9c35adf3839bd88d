"""Distinction between a full disk and other failures, for errors of any library."""

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
    for link in chain:
        if isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        text = str(link).lower()
        if "no space left on device" in text or "disk quota exceeded" in text:
            return True
    writing = any(isinstance(link, OSError | RuntimeError) for link in chain)
    return writing and shutil.disk_usage(folder).free < LITTLE_BYTES


def _chain(error: BaseException) -> Iterator[BaseException]:
    visited: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in visited:
        visited.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
