"""vLLM's GPU worker, for GPUs on which other programs allocate while it goes to sleep."""

from __future__ import annotations

import logging

import torch
from vllm.v1.worker.gpu_worker import Worker

_GREW = "Memory usage increased after sleeping"

_log = logging.getLogger(__name__)


class SleepingGPUWorker(Worker):
    """The stock worker measures the free memory of the device before and after it sleeps, and
    fails with an assertion where it has shrunk: a process that shares the GPU has then allocated
    more than sleeping has freed. The engine is asleep all the same."""

    freed_bytes: int | None = None
    """Free memory of the device after falling asleep less that before; None: awake."""

    def sleep(self, level: int = 1) -> None:
        """Extend vLLM's method."""
        free = free_bytes()
        try:
            super().sleep(level)
        except AssertionError as error:
            if _GREW not in str(error):
                raise
            _log.warning(
                "the free memory of the GPU has shrunk while the engine went to sleep: another"
                " process allocates on it"
            )
        self.freed_bytes = free_bytes() - free

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Extend vLLM's method."""
        super().wake_up(tags)
        self.freed_bytes = None


def free_bytes() -> int:
    """Return the free memory of this process's device, 0 without one."""
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0
