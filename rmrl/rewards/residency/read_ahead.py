"""The next engine's weights are read into the page cache while another engine scores; loading them
then reads memory, not disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

_CHUNK_BYTES = 8 * 2**20
_SPARED_BYTES = 512 * 2**20
"""Left alone: what others allocate meanwhile must not meet a full machine."""


def available_bytes() -> int:
    """Memory that can be had without swapping; pages of files count as available."""
    return int(psutil.virtual_memory().available)


class ReadAhead:
    """Reads the *.safetensors and *.bin files of a checkpoint folder once, in a thread. A hub id
    that is no folder: nothing."""

    def __init__(self, path: str, *, free_bytes: Callable[[], int] = available_bytes) -> None:
        """`free_bytes` is asked before every chunk: never more than it says at first, and nothing
        once it falls too low."""
        self._files = weight_files(path)
        self._free_bytes = free_bytes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="read-ahead", daemon=True)
        self.bytes_read = 0
        """So far."""
        self.seconds = 0.0
        """Spent reading; complete when `done`."""

    @property
    def done(self) -> bool:
        """It was started and reads no more."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Read no more; the chunk at hand may still end in the background."""
        self._stopped.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_s)

    def _read(self) -> None:
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        limit = self._free_bytes() - _SPARED_BYTES
        for file in self._files:
            try:
                self._read_file(file, buffer, limit)
            except OSError:
                return  # the loader will meet the same error and say it in its own words

    def _read_file(self, file: Path, buffer: memoryview, limit: int) -> None:
        with file.open("rb", buffering=0) as stream:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while (
                not self._stopped.is_set()
                and self.bytes_read + len(buffer) <= limit
                and self._free_bytes() > _SPARED_BYTES
            ):
                started = time.perf_counter()
                count = stream.readinto(buffer)
                self.seconds += time.perf_counter() - started
                if not count:
                    return
                self.bytes_read += count


def weight_files(path: str) -> list[Path]:
    """The weight files of a checkpoint folder in reading order; safetensors win over *.bin where
    both are there."""
    folder = Path(path).expanduser()
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
