"""Releases that rmrl allows and the tests do not install: asked of the index, nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts import load_script

ROOT = Path(__file__).resolve().parent.parent.parent
CONSTRAINTS = sorted((ROOT / "docker" / "constraints").iterdir())
PLATFORM = ("--python-version=3.12", "--python-platform=x86_64-manylinux_2_28")
"""Those of vLLM's images."""

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("file", CONSTRAINTS, ids=[path.stem for path in CONSTRAINTS])
def test_the_resolver_meets_the_constraints_of_each_vllm(file: Path) -> None:
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    uv = shutil.which("uv", path=beside)
    if uv is None:
        pytest.skip("uv is not installed: pip install uv")
    extras = ("--extra=cuda", "--extra=lora", "--extra=multinode")
    run = subprocess.run(
        [uv, "pip", "compile", "pyproject.toml", *extras, *PLATFORM, "--quiet", "--no-header",
         "--no-annotate", "--constraint", str(file)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "error sending request" in run.stderr or "dns error" in run.stderr:
        pytest.skip("the index cannot be reached")
    assert run.returncode == 0, run.stderr
    wanted = {line for line in file.read_text().splitlines() if "==" in line}
    wanted = {line for line in wanted if not line.startswith("#")}
    assert wanted <= set(run.stdout.splitlines())


def test_releases_of_torch_have_all_that_is_used(tmp_path: Path) -> None:
    contract = load_script(ROOT / "scripts" / "torch_contract.py")
    assert contract.main(["--cache", str(tmp_path)]) == 0
