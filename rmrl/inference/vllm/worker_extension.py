"""Methods mixed into vLLM's worker (CPU and CUDA alike) through its `worker_extension_cls`
argument.

vLLM calls them by name with `collective_rpc`, in every tensor-parallel worker process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from rmrl.inference.weights.file import read_weights

if TYPE_CHECKING:
    from torch import Tensor
    from vllm.config import ParallelConfig


CONTEXT_BYTES = 600 * 2**20
"""CUDA context and libraries of a process, of which PyTorch does not know: an estimate."""

SHUTDOWN_S = 10.0
"""Seconds that vLLM's own shutdown of a worker has once its parent has ended."""


class WorkerExtension:
    """Mixed into a worker: `self` has vLLM's `model_runner` and `reload_weights`."""

    model_runner: Any
    device: Any

    def load_weight_file(self, path: str) -> None:
        """Replace all weights by a file's that `rmrl.inference.weights.file` wrote."""
        self.reload_weights(weights_iterator=read_weights(path))  # type: ignore[attr-defined]

    def join_weight_transfer(self, init_info: dict[str, Any], engine_number: int) -> None:
        """Prepare for weights that reach several engines at once. vLLM counts engines as one
        deployment's replicas, which are numbered."""
        parallel: ParallelConfig = self.vllm_config.parallel_config  # type: ignore[attr-defined]
        own = parallel.data_parallel_index
        parallel.data_parallel_index = engine_number
        try:
            self.init_weight_transfer_engine(init_info)  # type: ignore[attr-defined]
        finally:
            parallel.data_parallel_index = own

    def end_with_parent(self, engine_pid: int) -> None:
        """Let this process outlive its parent by `SHUTDOWN_S` at most.

        vLLM's workers end by themselves when their parent does, but for a few that stay in their
        shutdown for good. `engine_pid`: the process that holds the engine; a worker in that process
        is left alone.
        """
        if os.getpid() != engine_pid:
            parent = os.getppid()
            threading.Thread(
                target=end_after_parent, args=(parent, SHUTDOWN_S), daemon=True
            ).start()

    def worker_bytes(self) -> int:
        """Return this process's device memory on CUDA, its resident memory on CPU."""
        if self.device.type == "cuda":
            return device_bytes(self.device, asleep=getattr(self, "asleep_bytes", None))
        return resident_bytes()

    def seed_sampling(self, seed: int) -> None:
        """Seed the generators that draw samples without their own seed."""
        torch.manual_seed(seed)

    def report_tempered_logprobs(self) -> bool:
        """Make the sampler report log softmax(logits / temperature) before top-k and top-p, False
        where it cannot be done.

        vLLM offers logprobs before temperature ("raw") or after top-k and top-p ("processed").
        Training divides the logits by the temperature and applies no top-k, so neither matches once
        both are in use. This gives training's definition in every case.
        """
        sampling = getattr(getattr(self.model_runner, "sampler", None), "topk_topp_sampler", None)
        if sampling is None:
            return False
        inner = sampling.forward

        def forward(
            _: object, logits: Tensor, generators: dict[int, torch.Generator], *filters: Any
        ) -> tuple[Tensor, Tensor]:
            # a copy: the filters write into `logits`
            logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
            return inner(logits, generators, *filters)[0], logprobs

        # else the inner sampler computes a second log softmax
        sampling.logprobs_mode = "raw_logprobs"
        sampling.forward = MethodType(forward, sampling)
        return True


def end_after_parent(parent: int, grace_s: float) -> None:
    """Wait until this process's parent is no longer `parent`, and `grace_s` seconds, then kill this
    process."""
    while os.getppid() == parent:
        time.sleep(1)
    time.sleep(grace_s)
    os.kill(os.getpid(), signal.SIGKILL)


def resident_bytes() -> int:
    """Return this process's resident memory (RSS)."""
    import psutil

    return psutil.Process().memory_info().rss


def device_bytes(device: torch.device, *, asleep: int | None = None) -> int:
    """Return the memory that this process occupies on a CUDA device, by the driver's count. Where
    the driver does not list the process (in many containers), by PyTorch's. `asleep`: PyTorch's
    count for a sleeping engine, see `asleep_bytes`. None: the engine is awake."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(
            f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        )
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid == os.getpid() and process.usedGpuMemory:
                return int(process.usedGpuMemory)
    except pynvml.NVMLError:
        pass
    return torch.cuda.memory_reserved(device) if asleep is None else asleep


def asleep_bytes(reserved: int, *, freed: int) -> int:
    """Return a sleeping process's bytes: what PyTorch had reserved before, less the device memory
    that falling asleep has freed, and the context, which PyTorch does not count. 0: not known, as
    where other processes allocated meanwhile."""
    if freed <= 0:
        return 0
    return max(0, reserved - freed) + CONTEXT_BYTES
