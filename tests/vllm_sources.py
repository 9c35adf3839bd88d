"""The weight transfer of one release of vLLM, from its unpacked sources, on a machine without a GPU.

The files of `vllm/distributed/weight_transfer` run as they are. Around them stand stubs: the rest of
vLLM that they import, and the names of torch.cuda, whose device memory is shared memory here and
whose handles are its names.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


def install(sources: Path, *, device: int) -> list[str]:
    """Make `vllm.distributed.weight_transfer` importable from `sources`, and torch.cuda a stub with
    the GPU `device`. Returns the list in which calls of the stubs are noted. For a process of its
    own: nothing is put back."""
    calls: list[str] = []
    for name in ("vllm", "vllm.distributed"):
        _package(name, sources)
    logger = SimpleNamespace(debug=_nothing, info=_nothing, warning=_nothing, debug_once=_nothing)
    _stub("vllm.logger", init_logger=lambda _: logger)
    _stub("vllm.envs", VLLM_ALLOW_INSECURE_SERIALIZATION=False)
    sys.modules["vllm"].envs = sys.modules["vllm.envs"]  # type: ignore[attr-defined]
    _stub("vllm.config")
    _stub("vllm.config.parallel", ParallelConfig=SimpleNamespace)
    _stub("vllm.config.weight_transfer", WeightTransferConfig=SimpleNamespace)
    _stub("vllm.model_executor")
    _stub("vllm.model_executor.model_loader")
    _stub(
        "vllm.model_executor.model_loader.reload",
        initialize_layerwise_reload=lambda _: calls.append("initialize reload"),
        finalize_layerwise_reload=lambda *_: calls.append("finalize reload"),
    )
    _stub(
        "vllm.model_executor.model_loader.mtp_validation",
        disable_mtp_completeness_check=contextlib.nullcontext,
    )
    _replace_cuda(device, calls)
    return calls


def _nothing(*_: object, **__: object) -> None:
    pass


def _package(name: str, sources: Path) -> None:
    module = ModuleType(name)
    module.__path__ = [str(sources.joinpath(*name.split(".")))]
    sys.modules[name] = module


def _stub(name: str, **members: object) -> None:
    module = ModuleType(name)
    module.__path__ = []
    module.__dict__.update(members)
    sys.modules[name] = module


class DeviceMemory:
    """Shared memory that stands for the memory of a GPU. The process that made a block frees it."""

    def __init__(self) -> None:
        self.made: dict[int, SharedMemory] = {}
        self.opened: dict[str, SharedMemory] = {}

    def allocate(self, size: int) -> torch.Tensor:
        """Return bytes that other processes can open."""
        block = SharedMemory(create=True, size=size)
        atexit.register(block.unlink)
        tensor = torch.frombuffer(block.buf, dtype=torch.uint8)[:size]
        self.made[tensor.data_ptr()] = block
        return tensor

    def handle(self, tensor: torch.Tensor) -> tuple[None, tuple[object, ...]]:
        """In place of reduce_tensor: (unused, arguments of `rebuild`)."""
        name = self.made[tensor.data_ptr()].name
        # Receivers overwrite the seventh, which is the device.
        return None, (name, tensor.numel(), None, None, None, None, 0)

    def rebuild(self, name: str, size: int, *_: object) -> torch.Tensor:
        """In place of rebuild_cuda_tensor."""
        if name not in self.opened:
            self.opened[name] = SharedMemory(name)
        return torch.frombuffer(self.opened[name].buf, dtype=torch.uint8)[:size]


def _replace_cuda(device: int, calls: list[str]) -> None:
    import torch.multiprocessing.reductions as reductions

    memory, empty = DeviceMemory(), torch.empty

    def on_any_device(*size: Any, device: object = None, **options: Any) -> torch.Tensor:
        if device == "cuda":
            return memory.allocate(size[0])
        return empty(*size, device=device, **options)

    torch.empty = on_any_device  # type: ignore[assignment]
    reductions.reduce_tensor = memory.handle  # type: ignore[assignment]
    reductions.rebuild_cuda_tensor = memory.rebuild  # type: ignore[assignment]
    stream = SimpleNamespace(synchronize=_nothing)
    torch.accelerator.current_device_index = lambda: device  # type: ignore[assignment]
    torch.accelerator.current_stream = lambda *_: stream  # type: ignore[assignment]
    torch.accelerator.synchronize = _nothing  # type: ignore[assignment]
    torch.cuda.synchronize = _nothing  # type: ignore[assignment]
    torch.cuda.current_stream = lambda *_: stream  # type: ignore[assignment]
    torch.cuda.ipc_collect = lambda: calls.append("collect")  # type: ignore[assignment]
    torch.cuda.get_device_properties = lambda index: SimpleNamespace(uuid=f"GPU-{index}")  # type: ignore[assignment]


def receiver(device: int, model: Any) -> Any:
    """Return the release's own receiving engine for a model with `load_weights`."""
    from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine

    engine = IPCWeightTransferEngine.__new__(IPCWeightTransferEngine)
    settings = SimpleNamespace(parallel_config=None, model_config=None)
    IPCWeightTransferEngine.__init__(
        engine, SimpleNamespace(backend="ipc"), settings, torch.device("cuda", device), model
    )
    return engine


class Received:
    """A model that notes what it is given, in order, and copies the values."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.tensors: dict[str, torch.Tensor] = {}

    def load_weights(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        for name, tensor in weights:
            self.names.append(name)
            self.tensors[name] = tensor
