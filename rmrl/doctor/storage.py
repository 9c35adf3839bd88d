"""Space for weights, models, checkpoints and Ray's files."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from rmrl.doctor.finding import Finding, ok

SHM = Path("/dev/shm")
_LEAST_SHM_GIB = 1.0
_LEAST_DISK_GIB = 2.0
_FEW_DISK_GIB = 20.0
_GIB = 2**30


def check_storage() -> list[Finding]:
    """Report the space in shared memory and on disks."""
    findings: list[Finding] = []
    if SHM.is_dir():
        usage = shutil.disk_usage(SHM)
        findings.append(shared_memory(usage.free / _GIB, usage.total / _GIB))
        findings += leftovers(SHM)
    places = {
        Path.cwd(): "runs and checkpoints are written here by default",
        model_cache(): "the cache of downloaded models",
        Path(tempfile.gettempdir()): "Ray and compilers write here",
    }
    for place, purpose in places.items():
        existing = place
        while not existing.exists():
            existing = existing.parent
        findings.append(disk(place, purpose, shutil.disk_usage(existing).free / _GIB))
        if not os.access(existing, os.W_OK):
            findings.append(
                Finding("problem", f"{existing} cannot be written", f"chmod u+w {existing}")
            )
    return findings


def model_cache() -> Path:
    """Return the folder of downloaded models, as huggingface_hub finds it."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()


def shared_memory(free_gib: float, total_gib: float) -> Finding:
    """Judge the size of /dev/shm, through which processes pass weights and Ray its objects."""
    text = f"{SHM}: {free_gib:.1f} of {total_gib:.1f} GiB free"
    if free_gib >= _LEAST_SHM_GIB:
        return ok(text)
    return Finding(
        "problem",
        f"{text}; updated weights and Ray's objects pass through it",
        "docker run --shm-size=16g ... (or --ipc=host); on a machine of your own: sudo mount -o"
        f" remount,size=16G {SHM}",
    )


def leftovers(folder: Path) -> list[Finding]:
    """Report published weights whose process is gone."""
    names: list[str] = []
    size = 0
    for path in sorted(folder.glob("rmrl-weights-*-*")):
        pid = path.name.split("-")[2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            names.append(str(path))
            size += path.stat().st_size
    if not names:
        return []
    text = f"{len(names)} files of ended runs hold {size / _GIB:.2f} GiB in {folder}"
    return [Finding("note", text, f"rm {' '.join(names)}")]


def disk(place: Path, purpose: str, free_gib: float) -> Finding:
    """Judge the free space of a disk."""
    text = f"{place}: {free_gib:.1f} GiB free"
    if free_gib >= _FEW_DISK_GIB:
        return ok(text)
    advice = f"make room: {purpose}"
    if free_gib < _LEAST_DISK_GIB:
        return Finding("problem", text, advice)
    return Finding("note", text, advice)
