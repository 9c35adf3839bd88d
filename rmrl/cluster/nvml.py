"""NVIDIA GPUs' memory through the driver's management library (NVML), which, unlike torch, creates
no CUDA context on them. A context takes several hundred megabytes until its process ends.

Import it where a GPU may be: NVIDIA's bindings take longer to load than rules to score.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pynvml

from rmrl.cluster.gpu import Gpu
from rmrl.errors import InfrastructureError


def driver_is_loaded() -> bool:
    """Return False without the driver's library, and where its files are installed and its kernel
    module is not loaded, as in an image for GPUs on a machine without them. Raises
    InfrastructureError for other failures."""
    absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with _one_sentence():
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if error.args[0] in absent:
                return False
            raise
        pynvml.nvmlShutdown()
    return True


def visible_gpus() -> list[Gpu | None]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves to this process, all of them without it;
    None for a GPU without its own memory (DGX Spark, Jetson), for which NVML reports none.

    As in CUDA the list ends at the first entry that names no GPU. Raises InfrastructureError where
    the driver gives no answer.
    """
    with _one_sentence():
        pynvml.nvmlInit()
        try:
            handles = list(
                map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            )
            return list(map(_gpu, _chosen(handles, os.environ.get("CUDA_VISIBLE_DEVICES"))))
        finally:
            pynvml.nvmlShutdown()


def _gpu(handle: Any) -> Gpu | None:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as error:
        if error.args[0] == pynvml.NVML_ERROR_NOT_SUPPORTED:
            return None
        raise
    name = pynvml.nvmlDeviceGetName(handle)
    return Gpu(total_bytes=int(memory.total), free_bytes=int(memory.free), name=name)


def _chosen(handles: Sequence[Any], visible: str | None) -> Iterator[Any]:
    """Yield the GPUs that CUDA_VISIBLE_DEVICES names: numbers, GPU UUIDs or their beginnings, MIG
    instances' UUIDs."""
    if visible is None:
        yield from handles
        return
    for entry in map(str.strip, visible.split(",")):
        handle = _named(handles, entry)
        if handle is None:
            return
        yield handle


def _named(handles: Sequence[Any], entry: str) -> Any | None:
    if entry.isdecimal():
        number = int(entry)
        return handles[number] if number < len(handles) else None
    if entry.startswith("MIG-"):
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(entry)
        except pynvml.NVMLError:
            return None
    if not entry.startswith("GPU-"):
        return None
    for handle in handles:
        if pynvml.nvmlDeviceGetUUID(handle).startswith(entry):
            return handle
    return None


@contextmanager
def _one_sentence() -> Iterator[None]:
    try:
        yield
    except pynvml.NVMLError as error:
        raise InfrastructureError(
            "NVIDIA's driver does not report the memory of the GPUs (NVML, code"
            f" {error.args[0]}): compare with what nvidia-smi prints; after an update of the driver"
            " the machine must restart"
        ) from error
