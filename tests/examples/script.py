"""Runs an example's script as a reader of its page does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def output_of(name: str, folder: Path) -> str:
    """Return what `examples/<name>/<name>.py` prints in `folder`."""
    script = ROOT / "examples" / name / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
