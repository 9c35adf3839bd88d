"""GPUs as the driver and as torch see them, and collectives between processes."""

# pyright: basic
# torch.cuda is partly untyped.

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Sequence

import torch

from rmrl.doctor import child
from rmrl.doctor.finding import Finding, ok
from rmrl.errors import RmrlError, first_line

_log = logging.getLogger(__name__)

_GIB = 2**30
_MOST_PROCESSES = 8
_DEADLINE_S = 120.0


def check_devices() -> list[Finding]:
    """Compare the GPUs that torch sees with the driver's."""
    driver = driver_gpus()
    if driver is None:
        return [
            Finding(
                "note",
                "nvidia-smi is there and gives no answer: the driver does not run, or hangs",
                "nvidia-smi; in a container: docker run --gpus all ...",
            )
        ]
    try:
        seen = torch_gpus()
    except RuntimeError as error:
        return [
            Finding(
                "problem",
                f"torch {torch.__version__} cannot use the GPUs: {first_line(error)}",
                "a newer driver, or a build of torch for the driver's CUDA version",
            )
        ]
    return device_findings(
        driver=driver,
        torch_gpus=seen,
        torch_version=torch.__version__,
        torch_cuda=torch.version.cuda,
    )


def check_collectives() -> list[Finding]:
    """Run an all-reduce over this machine's processes: gloo, and NCCL where torch sees GPUs."""
    _log.info("processes are started for an all-reduce, which takes seconds to a minute")
    findings = [_all_reduce("gloo", 2)]
    gpus = torch.cuda.device_count()
    if gpus:
        findings.append(_all_reduce("nccl", min(gpus, _MOST_PROCESSES)))
    return findings


def driver_gpus() -> list[str] | None:
    """Return a line for each GPU that `nvidia-smi` lists, [] without the program, None where it
    gives no answer."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total,memory.free,driver_version",
             "--format=csv,noheader"],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return [line.strip() for line in listed.stdout.splitlines() if line.strip()]


def torch_gpus() -> list[str]:
    """Return a line for each GPU that torch sees."""
    lines: list[str] = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        capability = f"{properties.major}.{properties.minor}"
        size = properties.total_memory / _GIB
        lines.append(f"{properties.name}, {size:.0f} GiB, compute capability {capability}")
    return lines


def device_findings(
    *,
    driver: Sequence[str],
    torch_gpus: Sequence[str],
    torch_version: str,
    torch_cuda: str | None,
) -> list[Finding]:
    """Return what follows from the driver's and torch's GPUs. `torch_cuda`: torch's CUDA version,
    None for a build without."""
    if torch_gpus:
        return [ok(f"GPU {index}: {line}") for index, line in enumerate(torch_gpus)]
    if not driver:
        return [ok("no GPU: models run on the CPU (trainer.device=auto chooses it)")]
    build = f"built for CUDA {torch_cuda}"
    if torch_cuda is None:
        build = "built without CUDA"
    return [
        Finding(
            "problem",
            f"the driver lists {len(driver)} GPUs ({driver[0]}), torch {torch_version} sees none:"
            f" it is {build}",
            'pip install "rmrl-toolkit[cuda]" in an environment without the extra cpu, or a driver'
            " for that CUDA version; CUDA_VISIBLE_DEVICES must not be empty",
        )
    ]


def _all_reduce(backend: str, size: int) -> Finding:
    try:
        result = child.run(
            "rmrl.doctor.collective:all_reduce",
            backend,
            str(size),
            deadline_s=_DEADLINE_S,
            environment={},
        )
    except RmrlError as error:
        interface = f"{backend.upper()}_SOCKET_IFNAME"
        return Finding(
            "problem",
            f"{backend}: an all-reduce over {size} processes failed: {error}",
            f"name the network interface: export {interface}=lo (one machine) or eth0; for NCCL"
            " NCCL_DEBUG=INFO shows more",
        )
    return ok(f"{backend}: all-reduce over {size} processes in {result['seconds']:.0f} s")
