"""Audits in the test's own process, of reward functions that are written as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmrl.cli import main

ROWS = 24


def write_reward(folder: Path, code: str) -> Path:
    """Write a reward function to a file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "planted.py"
    path.write_text(code, encoding="utf-8")
    return path


def audit(
    reward: Path | str, out: Path, *words: str, rows: int = ROWS, **settings: Any
) -> tuple[int, dict[str, Any]]:
    """Audit a function; return the exit code and audit.json."""
    settings = {"budget_s": 600, "rows": rows, **settings}
    keys = [f"audit.{key}={json.dumps(value)}" for key, value in settings.items()]
    code = main(["audit", str(reward), f"out={out}", "reward.rule_workers=1", *words, *keys])
    report = json.loads((out / "audit.json").read_text(encoding="utf-8"))
    return code, report
