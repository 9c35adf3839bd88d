"""Memory of NVIDIA GPUs through the driver's management library (NVML), which, unlike torch,
creates no CUDA context on them.

Structures and functions: NVIDIA, "NVML API Reference Guide". A context takes several hundred
megabytes of a GPU until its process ends.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rmrl.errors import InfrastructureError

_LIBRARY = "libnvidia-ml.so.1"
_UUID_BYTES = 96
_NAME_BYTES = 96

# Codes of nvmlReturn_t.
_NOT_SUPPORTED = 3
_DRIVER_NOT_LOADED = 9
_LIBRARY_NOT_FOUND = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Memory of one GPU in bytes."""

    total_bytes: int
    free_bytes: int
    name: str = ""
    """As the driver gives it."""


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


def library() -> Any | None:
    """Return the driver's library, None on a machine without NVIDIA's driver."""
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        return None


def driver_is_loaded(nvml: Any) -> bool:
    """Return False where the driver's files are installed and its kernel module is not loaded, as
    in an image for GPUs on a machine without them. Raises InfrastructureError for other failures.
    """
    code = nvml.nvmlInit_v2()
    if code in (_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND):
        return False
    _check(code)
    nvml.nvmlShutdown()
    return True


def visible_gpus(nvml: Any) -> list[Gpu | None]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves to this process, all of them without it;
    None for a GPU without memory of its own (DGX Spark, Jetson), of which NVML reports none.

    `nvml`: what `library` returns. As in CUDA the list ends at the first entry that names no GPU.
    Raises InfrastructureError where the driver gives no answer.
    """
    with _initialized(nvml):
        count = ctypes.c_uint()
        _check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        handles: list[ctypes.c_void_p] = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            _check(nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)))
            handles.append(handle)
        gpus: list[Gpu | None] = []
        for handle in _chosen(nvml, handles, os.environ.get("CUDA_VISIBLE_DEVICES")):
            memory = _Memory()
            code = nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
            if code == _NOT_SUPPORTED:
                gpus.append(None)
                continue
            _check(code)
            name = ctypes.create_string_buffer(_NAME_BYTES)
            _check(nvml.nvmlDeviceGetName(handle, name, _NAME_BYTES))
            gpus.append(
                Gpu(
                    total_bytes=memory.total,
                    free_bytes=memory.free,
                    name=name.value.decode(errors="replace"),
                )
            )
    return gpus


def _chosen(
    nvml: Any, handles: Sequence[ctypes.c_void_p], visible: str | None
) -> Iterator[ctypes.c_void_p]:
    """Yield the GPUs of CUDA_VISIBLE_DEVICES: numbers, UUIDs of GPUs or their beginnings, UUIDs of
    MIG instances."""
    if visible is None:
        yield from handles
        return
    for entry in map(str.strip, visible.split(",")):
        handle = _named(nvml, handles, entry)
        if handle is None:
            return
        yield handle


def _named(nvml: Any, handles: Sequence[ctypes.c_void_p], entry: str) -> ctypes.c_void_p | None:
    if entry.isdecimal():
        number = int(entry)
        return handles[number] if number < len(handles) else None
    if entry.startswith("MIG-"):
        instance = ctypes.c_void_p()
        code = nvml.nvmlDeviceGetHandleByUUID(entry.encode(), ctypes.byref(instance))
        return instance if code == 0 else None
    if not entry.startswith("GPU-"):
        return None
    for handle in handles:
        text = ctypes.create_string_buffer(_UUID_BYTES)
        _check(nvml.nvmlDeviceGetUUID(handle, text, _UUID_BYTES))
        if text.value.decode("ascii").startswith(entry):
            return handle
    return None


@contextmanager
def _initialized(nvml: Any) -> Iterator[None]:
    _check(nvml.nvmlInit_v2())
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _check(code: int) -> None:
    if code:
        raise InfrastructureError(
            f"NVIDIA's driver does not report the memory of the GPUs (NVML, code {code}): compare"
            " with what nvidia-smi prints; after an update of the driver the machine must restart"
        )
