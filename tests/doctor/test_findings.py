"""What `rmrl doctor` concludes from what it sees."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rmrl.config import installed
from rmrl.doctor import devices, engines, packages, sandbox
from rmrl.doctor.devices import device_findings
from rmrl.doctor.machine import open_files
from rmrl.doctor.storage import disk, leftovers, model_cache, place_findings, shared_memory
from rmrl.rewards.kinds.code.bubblewrap import Bubblewrap


def test_a_requirement_holds_is_missing_or_has_another_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages, "version_or_none", {"torch": "2.5.1", "ray": "2.60.0"}.get)
    assert packages.unmet(Requirement("ray>=2.44")) == ""
    assert packages.unmet(Requirement("torch>=2.6")) == "torch 2.5.1 is installed; need >=2.6"
    assert packages.unmet(Requirement("nothere")) == "nothere is not installed"


def test_a_development_version_counts_as_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "version_or_none", {"torch": "2.14.0.dev20260901"}.get)
    assert packages.unmet(Requirement("torch>=2.6")) == ""


def test_the_clash_with_the_other_rmrl_is_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        installed, "packages_distributions", lambda: {"rmrl": ["rmrl", "rmrl_toolkit"]}
    )
    first = packages.check_packages()[0]
    assert first.level == "problem"
    assert "pip uninstall rmrl, then" in first.text


def test_what_this_environment_lacks_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = dict.fromkeys(("torch", "ray", "wandb", "mlflow", "swanlab"), "99")
    monkeypatch.setattr(packages, "version_or_none", versions.get)
    findings = packages.check_packages()
    advice = [finding.advice for finding in findings if finding.level == "problem"]
    assert "pip install 'httpx>=0.28'" in advice
    assert not any("torch" in text for text in advice)
    extras = [finding.text for finding in findings if finding.level == "note"]
    assert "extra trackers: trackio is not installed" in extras


@pytest.mark.parametrize(
    ("driver", "torch_gpus", "cuda", "level", "part"),
    [
        ([], [], None, "ok", "no GPU"),
        (["H200, 1"], ["H200, 140 GiB"], "13.0", "ok", "GPU 0: H200, 140 GiB"),
        (["H200, 1"], [], None, "problem", "built without CUDA"),
        (["H200, 1"], [], "13.0", "problem", "built for CUDA 13.0"),
    ],
)
def test_gpus_of_the_driver_that_torch_does_not_see_are_a_problem(
    driver: list[str], torch_gpus: list[str], cuda: str | None, level: str, part: str
) -> None:
    findings = device_findings(
        driver=driver, torch_gpus=torch_gpus, torch_version="2.13", torch_cuda=cuda
    )
    assert [finding.level for finding in findings] == [level]
    assert part in findings[0].text


def test_dockers_shared_memory_is_too_small() -> None:
    """Docker's default: 64 MiB."""
    finding = shared_memory(0.0625, 0.0625)
    assert finding.level == "problem"
    assert "docker run --shm-size=16g" in finding.advice
    assert shared_memory(8.0, 16.0).level == "ok"


@pytest.mark.parametrize(("free", "level"), [(1.9, "problem"), (2.0, "note"), (20.0, "ok")])
def test_disks(free: float, level: str) -> None:
    assert disk(Path("/data"), "checkpoints", free).level == level


@pytest.mark.parametrize(
    ("soft", "hard", "level", "advice"),
    [
        (1024, 1_048_576, "note", "ulimit -n 65536"),
        (1024, 2048, "note", "ulimit -n 2048"),
        (4096, 4096, "ok", ""),
        (-1, -1, "ok", ""),
    ],
)
def test_open_files(soft: int, hard: int, level: str, advice: str) -> None:
    finding = open_files(soft, hard)
    assert (finding.level, finding.advice) == (level, advice)


def test_weights_of_ended_processes_are_named_those_of_living_ones_are_not(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert leftovers(tmp_path) == []
    (tmp_path / f"rmrl-weights-{os.getpid()}-3").write_bytes(b"x")
    gone = tmp_path / f"rmrl-weights-{ended.pid}-7"
    gone.write_bytes(b"x")
    assert leftovers(tmp_path) == []  # of another container, perhaps: it is new
    hours_ago = time.time() - 7200
    for path in tmp_path.iterdir():
        os.utime(path, (hours_ago, hours_ago))
    finding = leftovers(tmp_path)[0]
    assert finding.level == "note"
    assert finding.advice == f"where no other container uses them: rm {gone}"


def test_a_folder_that_does_not_exist_is_judged_by_the_one_above(tmp_path: Path) -> None:
    findings = place_findings(tmp_path / "a" / "b", "models")
    assert len(findings) == 1
    assert findings[0].text.startswith(f"{tmp_path}/a/b: ")


def test_a_folder_behind_a_closed_one_is_a_problem_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object, mode: int) -> bool:
        return mode == os.R_OK

    monkeypatch.setattr(os, "access", refused)
    finding = place_findings(tmp_path / "hub", "models")[1]
    assert finding.level == "problem"
    assert f"{tmp_path}/hub cannot be written by this user" in finding.text


def test_a_driver_without_an_answer_is_no_machine_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "driver_gpus", lambda: None)
    assert [finding.level for finding in devices.check_devices()] == ["note"]


def test_a_driver_too_old_for_torch_is_a_problem_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def old() -> list[str]:
        raise RuntimeError("The NVIDIA driver on your system is too old\nmore")

    monkeypatch.setattr(devices, "driver_gpus", lambda: ["H200"])
    monkeypatch.setattr(devices, "torch_gpus", old)
    finding = devices.check_devices()[0]
    assert finding.level == "problem"
    assert finding.text.endswith("cannot use the GPUs: The NVIDIA driver on your system is too old")


def test_the_cache_of_models_follows_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", "/models")
    assert model_cache() == Path("/models/hub")
    monkeypatch.setenv("HF_HUB_CACHE", "/elsewhere")
    assert model_cache() == Path("/elsewhere")


def test_a_machine_without_a_sandbox_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "local_sandbox", lambda _: "bubblewrap (bwrap) is not installed")
    [finding] = sandbox.check_sandbox()
    assert finding.level == "note"
    assert "kind code: bubblewrap (bwrap) is not installed" in finding.text
    made = Bubblewrap("/usr/bin/bwrap", "/usr/bin/python3", (), as_root=False)
    monkeypatch.setattr(sandbox, "local_sandbox", lambda _: made)
    [finding] = sandbox.check_sandbox()
    assert finding.level == "ok"
    assert finding.text == "sandbox for code: /usr/bin/bwrap ran two programs (user namespaces)"


@pytest.mark.parametrize(
    ("transfer", "line"),
    [
        ("", "new weights travel by ipc; vLLM 0.33.0 takes rmrl's weights"),
        (
            "TypeError: metadata must be a cached_property",
            "new weights cannot travel by ipc, and with weight_transport=auto they travel in files:"
            " TypeError: metadata must be a cached_property",
        ),
    ],
)
def test_a_check_tries_the_source_of_weights_without_a_gpu(
    transfer: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"version": "0.33.0", "platform": "cuda", "transfer": transfer}
    monkeypatch.setattr(engines.child, "run", lambda *_, **__: answer)
    assert engines.transport_line("ipc") == line
    assert "weight_transport=file" in engines.transport_line("file")


def test_a_vllm_that_does_not_take_the_weights_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    answer = {"version": "0.33.0", "platform": "cpu", "transfer": "TypeError: metadata"}
    monkeypatch.setattr(engines.child, "run", lambda *_, **__: answer)
    problems = [finding for finding in engines.check_vllm() if finding.level == "problem"]
    assert any("ipc or nccl: TypeError: metadata" in finding.text for finding in problems)
