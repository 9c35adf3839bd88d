"""An all-reduce over this machine's processes, on CPU (gloo) or with a GPU for each (nccl)."""

# pyright: basic
# pyright: reportPrivateImportUsage=false
# torch.distributed is partly untyped.

from __future__ import annotations

import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

_TIMEOUT = timedelta(seconds=60)


def reduce(rank: int, backend: str, size: int, folder: str) -> None:
    """Add up the numbers 1 to `size`, one from each rank. Raises AssertionError for another sum."""
    store = dist.FileStore(str(Path(folder) / "store"), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    total = torch.full((1 << 20,), float(rank + 1), device=device)
    dist.all_reduce(total)
    expected = size * (size + 1) / 2
    assert bool((total == expected).all()), f"rank {rank}: the sum is not {expected:g}"
    dist.destroy_process_group()


def all_reduce(backend: str, size: str) -> dict[str, float]:
    """Return the seconds that an all-reduce over `size` processes took, their start included."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(reduce, args=(backend, int(size), folder), nprocs=int(size))
    return {"seconds": time.perf_counter() - start}
