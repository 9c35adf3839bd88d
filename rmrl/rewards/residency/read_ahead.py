"""Read the next engine's weights into the page cache while another engine scores. Loading the
engine then reads memory, not disk."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

_CHUNK_BYTES = 8 * 2**20
_SPARED_BYTES = 512 * 2**20
"""Memory left free for other allocations in the meantime."""


def available_bytes() -> int:
    """Return the memory available without swapping. Cached file pages count as available."""
    return int(psutil.virtual_memory().available)


class ReadAhead:
    """Reads the *.safetensors and *.bin files in a checkpoint folder once, in a thread. A hub id
    without a folder has no files."""

    def __init__(self, path: str, *, free_bytes: Callable[[], int] = available_bytes) -> None:
        """`free_bytes` is called before every chunk. Reading does not go beyond its first value,
        and stops once it falls too low."""
        self._files = weight_files(path)
        self._free_bytes = free_bytes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="read-ahead", daemon=True)
        self.bytes_read = 0
        """Bytes read so far."""
        self.seconds = 0.0
        """Seconds spent reading; complete when `done`."""

    @property
    def done(self) -> bool:
        """True once the thread was started and has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop reading. The current chunk may still end in the background."""
        self._stopped.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_s)

    def _read(self) -> None:
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        limit = self._free_bytes() - _SPARED_BYTES
        # The loader will meet the same error and report it.
        with contextlib.suppress(OSError):
            for file in self._files:
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
                            break
                        self.bytes_read += count


def weight_files(path: str) -> list[Path]:
    """Return a checkpoint folder's weight files in reading order: safetensors rather than *.bin
    where both exist."""
    folder = Path(path).expanduser()
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
