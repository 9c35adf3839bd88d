"""This machine's cores, memory and limits."""

from __future__ import annotations

import os
import resource

from rmrl.cluster.devices import cores, free_bytes, total_bytes
from rmrl.doctor.finding import Finding, ok

_LEAST_FREE_GIB = 4.0
_LEAST_FILES = 4096
_GIB = 2**30


def check_machine() -> list[Finding]:
    """Report cores and memory, and limits that a run may meet."""
    free = free_bytes() / _GIB
    text = f"{cores()} cores, {free:.1f} of {total_bytes() / _GIB:.1f} GiB memory free"
    if free < _LEAST_FREE_GIB:
        advice = "end other programs; a small model takes a few GiB"
        findings = [Finding("note", text, advice)]
    else:
        findings = [ok(text)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    findings.append(open_files(soft, hard))
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        text = "HF_HUB_OFFLINE is set: no model or data set is downloaded"
        findings.append(Finding("note", text, "unset HF_HUB_OFFLINE"))
    return findings


def open_files(soft: int, hard: int) -> Finding:
    """Judge the limit on open files, `soft` of at most `hard`. -1: unlimited."""
    if soft in (-1, resource.RLIM_INFINITY):
        return ok("open files: unlimited")
    if soft >= _LEAST_FILES:
        return ok(f"open files: {soft:,}")
    most = 65536
    if hard > 0:
        most = min(most, hard)
    return Finding(
        "note",
        f"open files: {soft:,}, which Ray may exhaust on many processes",
        f"ulimit -n {most}",
    )
