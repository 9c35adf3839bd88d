"""Folder for large short-lived files. Imports nothing heavy."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from rmrl.errors import InfrastructureError

SHARED_MEMORY = Path("/dev/shm")


def needed_bytes(total_bytes: int) -> int:
    """Return the room for a file with `total_bytes`, with a tenth to spare."""
    return total_bytes + total_bytes // 10


def free_scratch_bytes() -> tuple[int | None, int | None]:
    """Free bytes in shared memory and in the temporary folder, None for a folder that cannot be
    written."""
    shared, temporary = [
        shutil.disk_usage(folder).free if os.access(folder, os.W_OK) else None
        for folder in (SHARED_MEMORY, Path(tempfile.gettempdir()))
    ]
    return shared, temporary


def weight_folder(total_bytes: int) -> Path:
    """Return a folder for a file with `total_bytes`: shared memory where it has room (with a tenth
    to spare), else the temporary folder.

    Raises InfrastructureError where neither has room.
    """
    needed = needed_bytes(total_bytes)
    folders = [SHARED_MEMORY, Path(tempfile.gettempdir())]
    for folder in folders:
        if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= needed:
            return folder
    raise InfrastructureError(
        f"the weights to publish need {needed / 2**30:.2f} GiB of shared memory, and neither"
        f" {folders[0]} nor {folders[1]} has as much free; enlarge /dev/shm (docker: --shm-size) or"
        " point TMPDIR at a larger disk"
    )
