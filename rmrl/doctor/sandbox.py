"""The sandbox in which `code` rewards run programs."""

from __future__ import annotations

from rmrl.doctor.finding import Finding, ok
from rmrl.rewards.kinds.code.local import local_sandbox


def check_sandbox() -> list[Finding]:
    """Report whether bubblewrap works here. Only `code` rewards need it."""
    sandbox = local_sandbox("")
    if isinstance(sandbox, str):
        return [Finding("note", f"no local sandbox for rewards of kind code: {sandbox}")]
    user = "a user id for each program" if sandbox.as_root else "user namespaces"
    return [ok(f"sandbox for code: {sandbox.executable} ran two programs ({user})")]
