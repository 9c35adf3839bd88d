"""examples/launch and docker: scripts that a shell reads, one training line whose keys exist, and a
SLURM job with stand-ins for SLURM, Ray and the training."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rmrl.config.load import compose_config

ROOT = Path(__file__).resolve().parent.parent.parent
LAUNCH = ROOT / "examples" / "launch"
SCRIPTS = sorted(LAUNCH.glob("*.sh"))
LINE = "examples/launch/train_7b.sh"
SKYPILOT = yaml.safe_load((LAUNCH / "skypilot.yaml").read_text(encoding="utf-8"))
BESIDE = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def programs(folder: Path, **bodies: str) -> dict[str, str]:
    """Return the environment in which these names are scripts with these bodies."""
    folder.mkdir()
    for name, body in bodies.items():
        path = folder / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}


@pytest.mark.parametrize(
    "name", [*(path.name for path in SCRIPTS), "skypilot run", "skypilot setup"]
)
def test_a_shell_reads_the_scripts(tmp_path: Path, name: str) -> None:
    path = LAUNCH / name
    if name.startswith("skypilot"):
        path = tmp_path / "part.sh"
        path.write_text(f"#!/usr/bin/env bash\n{SKYPILOT[name.split()[1]]}", encoding="utf-8")
    checkers = [["bash", "-n"]]
    if shellcheck := shutil.which("shellcheck", path=BESIDE):
        checkers.append([shellcheck])
    for checker in checkers:
        run = subprocess.run([*checker, path], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr


def test_all_ways_start_the_same_line() -> None:
    for text in (
        SKYPILOT["run"],
        (LAUNCH / "slurm.sh").read_text(encoding="utf-8"),
        (LAUNCH / "ray_job.sh").read_text(encoding="utf-8"),
    ):
        assert len(re.findall(f'{LINE}"? trainer.nnodes=', text)) == 1
        assert "rmrl.main_ppo" not in text


def test_the_keys_of_the_line_exist_and_further_ones_win(tmp_path: Path) -> None:
    (tmp_path / "data" / "math").mkdir(parents=True)
    (tmp_path / "data" / "math" / "train.parquet").touch()
    environment = programs(tmp_path / "bin", python='printf "%s\\n" "$@"')
    run = subprocess.run(
        ["bash", LAUNCH / "train_7b.sh", "trainer.nnodes=2"],
        env={**environment, "SHARED": str(tmp_path), "PYTHON_BIN": "python"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    module, name, *settings = run.stdout.splitlines()
    assert (module, name) == ("-m", "rmrl.main_ppo")
    config = compose_config(settings)
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (2, 8)
    assert config.trainer.default_local_dir == f"{tmp_path}/runs/first_7b"
    assert config.reward.specs["clear"]["criteria"] == ["Every step is explained."]
    of_the_page = (ROOT / "docs" / "to-7b.md").read_text(encoding="utf-8")
    for setting in settings:
        key = setting.partition("=")[0]
        if key not in ("trainer.nnodes", "trainer.default_local_dir"):
            assert f"{key}=" in of_the_page, key


@pytest.mark.parametrize("code", [0, 3, 130])
def test_a_slurm_job_starts_ray_everywhere_and_ends_as_the_training_does(
    tmp_path: Path, code: int
) -> None:
    environment = programs(
        tmp_path / "bin",
        srun='echo "srun $*" >>log\nif [[ $* == *hostname* ]]; then echo "10.0.0.1 fe80::1"; fi',
        scontrol='echo "scontrol $*" >>log\nif [[ $1 == show ]]; then printf "one\\ntwo\\n"; fi',
        ray='[[ $* == "health-check --address 10.0.0.1:6379" ]]',
    )
    line = tmp_path / LINE
    line.parent.mkdir(parents=True)
    # The second node's srun runs in the background: the training ends after it has written its line.
    until_both_started = (
        'for _ in {1..1200}; do [[ $(grep -c "ray start" log) == 2 ]] && break; sleep 0.05; done'
    )
    line.write_text(
        f'echo "train $RAY_ADDRESS $*" >>log\n{until_both_started}\nexit {code}\n', encoding="utf-8"
    )
    slurm = {
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "one,two",
        "SLURM_NNODES": "2",
    }
    run = subprocess.run(
        ["bash", LAUNCH / "slurm.sh", "trainer.test_freq=5"],
        env={**environment, **slurm, "SLURM_JOB_ID": "7"}, check=False,
    )  # fmt: skip
    assert run.returncode == code
    log = (tmp_path / "log").read_text().splitlines()
    assert "train 10.0.0.1:6379 trainer.nnodes=2 trainer.test_freq=5" in log
    assert ("scontrol requeue 7" in log) == (code == 130)
    started = [each for each in log if "ray start" in each]
    assert len(started) == 2
    assert any("-w one ray start --head" in each for each in started)
    assert any(
        "--nodes=1 --ntasks=1 -x one ray start --address=10.0.0.1:6379" in each for each in started
    )


def test_the_image_takes_a_vllm_that_has_constraints() -> None:
    text = (ROOT / "docker" / "Dockerfile.cuda").read_text(encoding="utf-8")
    (release,) = re.findall(r"^ARG VLLM=(\S+)$", text, re.M)
    series = release.rpartition(".")[0]
    file = ROOT / "docker" / "constraints" / f"vllm-{series}.txt"
    assert f"vllm=={release}" in file.read_text().splitlines()
    for image in ("cuda", "cpu"):
        lines = (ROOT / "docker" / f"Dockerfile.{image}").read_text(encoding="utf-8").splitlines()
        for copied in (line.split()[1:-1] for line in lines if line.startswith("COPY")):
            assert all((ROOT / name).exists() for name in copied)
