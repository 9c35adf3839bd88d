"""The CPU adaptation leaves a process with CUDA as it was."""

from __future__ import annotations

import subprocess
import sys


def test_in_a_fresh_process_with_cuda_install_touches_nothing() -> None:
    program = """
import sys, torch
torch.cuda.is_available = lambda: True
modules = {name: dict(vars(sys.modules[name])) for name in ("torch.cuda", "torch.cuda.random", "torch.cuda.nvtx")}
compile = torch.compile
from rmrl.backends.megatron import cpu
cpu.install()
assert torch.compile is compile
assert not [name for name in sys.modules if name.startswith("megatron")]
for name, before in modules.items():
    after = vars(sys.modules[name])
    assert [key for key in before if after[key] is not before[key]] == [], name
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
