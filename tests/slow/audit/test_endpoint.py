"""`rmrl audit` of a reward behind an endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.forks.servers import import_path
from tests.slow.serve.test_process import REPOSITORY, server

LIMIT_S = 1800.0


def audited(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Audit in a process of its own; return the exit code and audit.json."""
    out = folder / "audit"
    done = subprocess.run(
        [sys.executable, "-m", "rmrl.main_audit", f"out={out}", "audit.budget_s=900", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": import_path(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode in (0, 1), done.stderr[-3000:]
    return done.returncode, json.loads((out / "audit.json").read_text(encoding="utf-8"))


def findings(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All findings by name."""
    checks = report["checks"].values()
    return {each["name"]: each for check in checks for each in check["findings"]}


def test_a_reward_behind_an_endpoint_is_audited_as_it_is(tmp_path: Path) -> None:
    keys = ["reward.models=[gsm8k]", "serve.wires=[native,slime]", "trainer.device=cpu"]
    with server(tmp_path, *keys) as running:
        running.wait_until(200)
        spec = f"++reward.specs.house={{kind: remote, wire: slime, url: {running.address}/slime}}"
        code, report = audited(tmp_path, "reward.models=[house]", spec, "audit.rows=12")
    named = findings(report)
    failed = [name for name, each in named.items() if each["verdict"] == "fail"]
    assert (code, failed) == (0, []), [named[name] for name in failed]
    assert "best: ####" in named["golden.references"]["tried"]
