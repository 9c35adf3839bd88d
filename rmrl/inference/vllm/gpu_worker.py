"""vLLM's GPU worker, for GPUs on which other programs allocate while it goes to sleep."""

from __future__ import annotations

import logging

import torch
from vllm.v1.worker.gpu_worker import Worker

from rmrl.inference.vllm.lone_store import in_memory
from rmrl.inference.vllm.worker_extension import asleep_bytes

_GREW = "Memory usage increased after sleeping"

_log = logging.getLogger(__name__)


class SleepingGPUWorker(Worker):
    """The stock worker measures the device's free memory before and after it sleeps, and fails with
    an assertion where it has shrunk: a process that shares the GPU has then allocated more than
    sleeping has freed. The engine is asleep all the same."""

    asleep_bytes: int | None = None
    """Device memory that the sleeping process holds by PyTorch's count. None: awake."""

    def init_device(self) -> None:
        """Extend vLLM's method: a single worker leaves no file behind."""
        self.distributed_init_method = in_memory(
            self.distributed_init_method, processes=self.parallel_config.world_size
        )
        super().init_device()

    def sleep(self, level: int = 1) -> None:
        """Extend vLLM's method."""
        free = free_bytes()
        # Falling asleep empties the cache of the allocator, which is part of the freed bytes: what
        # was reserved must be read before it.
        reserved = reserved_bytes()
        try:
            super().sleep(level)
        except AssertionError as error:
            if _GREW not in str(error):
                raise
            _log.warning(
                "the free memory of the GPU has shrunk while the engine went to sleep: another"
                " process allocates on it"
            )
        self.asleep_bytes = asleep_bytes(reserved, freed=free_bytes() - free)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Extend vLLM's method."""
        super().wake_up(tags)
        self.asleep_bytes = None


def free_bytes() -> int:
    """Return the free memory on this process's device, 0 without one."""
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0


def reserved_bytes() -> int:
    """Return the memory that PyTorch has reserved on this process's device, 0 without one."""
    return torch.cuda.memory_reserved() if torch.cuda.is_available() else 0
