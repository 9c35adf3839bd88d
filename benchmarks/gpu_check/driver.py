"""What the driver leaves on a GPU: nothing, since it only plans."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch

from benchmarks.gpu_check.gauges import GIB, used_gib
from benchmarks.gpu_check.jobs import Job
from benchmarks.gpu_check.rig import Numbers, Rig, require
from benchmarks.gpu_check.training import on_cuda
from rmrl.cluster.nvml import driver_is_loaded, visible_gpus

_PROGRAM = """
import json, sys
from pathlib import Path
from rmrl.config.load import compose_config
from rmrl.config.schema import Config
from rmrl.trainer.check_run import check
check(compose_config(sys.argv[1:], Config), shipped_functions=Path("reward_functions"))
import torch
print(json.dumps({"context": torch.cuda.is_initialized()}), flush=True)
sys.stdin.read()
"""
_DEADLINE_S = 120.0


def driver_leaves(rig: Rig) -> Numbers:
    """A process that has checked a training run and printed its plan has no CUDA context, and the
    device has the memory that it had."""
    job = Job.prepared(rig)
    before = used_gib(rig)
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *job.settings("driver")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert process.stdout is not None
    try:
        printed = ""
        for line in process.stdout:
            printed = line
            if line.startswith('{"context"'):
                break
        context = bool(json.loads(printed)["context"]) if printed else True
        after = used_gib(rig)
    finally:
        process.communicate(timeout=_DEADLINE_S)
    numbers = {"context": float(context), "grew_gib": after - before}
    require(process.returncode == 0, "the check of the run failed", numbers)
    require(not context, "the driver has a CUDA context", numbers)
    if rig.device == "cuda":
        require(numbers["grew_gib"] < 0.1, "the driver takes memory of the GPU", numbers)
    return numbers


def nvml_memory(rig: Rig) -> Numbers:
    """The driver's library, which plans read, gives the memory that torch sees."""
    on_cuda(rig)
    require(driver_is_loaded(), "NVML finds no driver", {})
    gpu = visible_gpus()[0]
    if gpu is None:
        return {"unified_memory": 1.0}  # NVML has no numbers to compare
    free, total = torch.cuda.mem_get_info(0)
    numbers = {
        "nvml_free_gib": gpu.free_bytes / GIB,
        "torch_free_gib": free / GIB,
        "nvml_total_gib": gpu.total_bytes / GIB,
        "torch_total_gib": total / GIB,
    }
    require(abs(gpu.free_bytes - free) < 2**30, "free memory differs by 1 GiB", numbers)
    require(abs(gpu.total_bytes - total) < 0.02 * total, "total memory differs by 2 %", numbers)
    return numbers
