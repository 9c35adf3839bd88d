"""Every command of README.md runs as it is printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_readme import ROOT, blocks, commands


def is_set_up(command: str) -> bool:
    """Whether a command installs, builds or fetches something, or is one of make's own targets."""
    return command.startswith(("pip install", "make "))


@pytest.mark.timeout(1800)
def test_every_command_of_the_readme_runs_as_printed(
    tmp_path: Path, smollm2: Path, monkeypatch: pytest.MonkeyPatch
):
    """In a copy of the checkout; what `make models data` makes is made there by its own scripts."""
    root = copy_of_checkout(tmp_path / "checkout")
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (root / ".models").mkdir()
    (root / ".models" / "smollm2").symlink_to(smollm2)
    scripts = ["examples/arithmetic/make_data.py --out .data/arithmetic"]
    policy = ROOT / ".models" / "tiny-arith"
    if (policy / "config.json").is_file():
        (root / ".models" / "tiny-arith").symlink_to(policy)
    else:
        scripts.append("examples/arithmetic/make_tiny_policy.py --out .models/tiny-arith")
    for script in scripts:
        subprocess.run([sys.executable, *script.split()], cwd=root, check=True, capture_output=True)
    (dropin,) = [code for code in blocks(ROOT / "README.md", "python") if "rm_preprocess" in code]
    (root / "reward_functions" / "polite.py").write_text(dropin, encoding="utf-8")
    ran = [command for command in commands() if not is_set_up(command)]
    assert [re.match(r"python -m rmrl\.\w+|\w+ \w+", command)[0] for command in ran] == [  # type: ignore[index]
        "python -m rmrl.main_ppo",
        "rmrl check",
        "rmrl score",
        "rmrl show",
        "rmrl report",
    ]
    for command in ran:
        done = subprocess.run(
            ["bash", "-c", command], cwd=root, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert (root / "runs" / "rmrl" / "first" / "curves.png").is_file()
    assert (root / "runs" / "rmrl" / "first" / "report.html").is_file()


def copy_of_checkout(folder: Path) -> Path:
    """Copy what the commands use into `folder`."""
    folder.mkdir(parents=True)
    for name in ("rmrl", "configs", "reward_functions", "examples", "data_preprocess"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    return folder
