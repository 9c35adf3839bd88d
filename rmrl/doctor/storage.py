"""Space for weights, models, checkpoints and Ray's files."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from rmrl.doctor.finding import Finding, ok

SHM = Path("/dev/shm")
_LEAST_SHM_GIB = 1.0
_LEAST_DISK_GIB = 2.0
_FEW_DISK_GIB = 20.0
_OLD_S = 3600.0
_GIB = 2**30


def check_storage() -> list[Finding]:
    """Report the space in shared memory and on disks."""
    findings: list[Finding] = []
    if SHM.is_dir():
        usage = shutil.disk_usage(SHM)
        findings.append(shared_memory(usage.free / _GIB, usage.total / _GIB))
        findings += leftovers(SHM)
    places = {
        Path(os.environ.get("PWD", ".")): "runs and checkpoints are written here by default",
        model_cache(): "the cache of downloaded models",
        Path(tempfile.gettempdir()): "Ray and compilers write here",
    }
    for place, purpose in places.items():
        findings += place_findings(place, purpose)
    return findings


def place_findings(place: Path, purpose: str) -> list[Finding]:
    """Judge a folder, or where it does not exist yet, the one in which it will be made."""
    existing = place
    # False also where a folder above may not be read.
    while not os.path.exists(existing) and existing != existing.parent:  # noqa: PTH110
        existing = existing.parent
    findings = [disk(place, purpose, shutil.disk_usage(existing).free / _GIB)]
    if not os.access(existing, os.W_OK | os.X_OK):
        findings.append(
            Finding(
                "problem",
                f"{place} cannot be written by this user: {purpose}",
                f"chmod u+rwx {existing}, as its owner, or another folder (HF_HOME, TMPDIR)",
            )
        )
    return findings


def model_cache() -> Path:
    """Return the folder for downloaded models, as huggingface_hub finds it."""
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()


def shared_memory(free_gib: float, total_gib: float) -> Finding:
    """Judge how large /dev/shm is, through which processes pass weights and Ray its objects."""
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
    """Report old published weights whose process is gone. Containers may share the folder and not
    their processes' numbers."""
    names: list[str] = []
    size = 0
    for path in sorted(folder.glob("rmrl-weights-*-*")):
        pid = path.name.split("-")[2]
        with suppress(OSError):  # it is gone meanwhile
            status = path.stat()
            is_old = time.time() - status.st_mtime > _OLD_S
            if pid.isdigit() and is_old and not Path(f"/proc/{pid}").exists():
                names.append(str(path))
                size += status.st_size
    if not names:
        return []
    text = f"{len(names)} files of ended runs hold {size / _GIB:.2f} GiB in {folder}"
    return [Finding("note", text, f"where no other container uses them: rm {' '.join(names)}")]


def disk(place: Path, purpose: str, free_gib: float) -> Finding:
    """Judge a disk's free space."""
    text = f"{place}: {free_gib:.1f} GiB free"
    if free_gib >= _FEW_DISK_GIB:
        return ok(text)
    advice = f"make room: {purpose}"
    if free_gib < _LEAST_DISK_GIB:
        return Finding("problem", text, advice)
    return Finding("note", text, advice)
