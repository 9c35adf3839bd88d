"""Records of scripts/mutants.py: a whole run on a small package, and the same mutants in other
versions of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
SOURCE = '''"""Sums."""


def clipped(value: int) -> int:
    if value > 9:
        return 9
    return value


def doubled(value: int) -> int:
    return value * 2
'''
TESTS = """from rmrl.sums.clip import clipped, doubled


def test_clipped():
    assert [clipped(3), clipped(9), clipped(12)] == [3, 9, 9]


def test_doubled():
    assert doubled(4) == 8
"""
WEAK = TESTS.replace("== 8", "> 0")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    pytest.importorskip("coverage", reason="mutants need coverage: pip install coverage")
    for path, text in {
        "rmrl/__init__.py": "",
        "rmrl/sums/__init__.py": "",
        "rmrl/sums/clip.py": SOURCE,
        "tests/test_clip.py": TESTS,
        "pytest.ini": "[pytest]\npythonpath = .\nmarkers =\n    slow\n    nightly\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "scripts").mkdir()
    for script in SCRIPTS.glob("mutant*.py"):
        shutil.copy(script, tmp_path / "scripts")
    return tmp_path


def mutants(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(project), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "scripts/mutants.py", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def statuses(record: Path) -> dict[str, str]:
    """Text and fault of a mutant -> its status."""
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    return {f"{line['place']['text']} {line['place']['fault']}": line["status"] for line in lines}


def test_the_same_mutants_die_or_live_under_other_tests_and_in_other_sources(
    project: Path,
) -> None:
    first = mutants(project, "sums=99", "--record", "first.json", "--seed", "5")
    assert first.returncode == 0, first.stdout + first.stderr
    before = statuses(project / "first.json")
    assert before["value * 2 BinOp:operator:0"] == "killed"
    assert before["value > 9 Compare:opposite:0"] == "killed"
    assert before["value > 9 Compare:comparison:0"] == "survived"  # 9 is 9
    assert '"seed": 5' in (project / "first.json").read_text()

    same = mutants(project, "--replay", "first.json", "--record", "same.json")
    assert same.returncode == 0, same.stdout
    assert statuses(project / "same.json") == before

    # Further down, with a changed line, and tests that notice less.
    moved = '"""Sums."""\n\nLIMIT = 9\n' + SOURCE.partition("\n")[2].replace("> 9", "> LIMIT")
    (project / "rmrl/sums/clip.py").write_text(moved)
    (project / "tests/test_clip.py").write_text(WEAK)
    other = mutants(project, "--replay", "first.json", "--record", "other.json")
    assert other.returncode == 1
    after = statuses(project / "other.json")
    assert after["value * 2 BinOp:operator:0"] == "survived"
    assert "value > 9 Compare:opposite:0" not in after
    printed = other.stdout.splitlines()
    assert "    value > 9  ->  value <= 9" in printed
    place = printed.index("    value > 9  ->  value <= 9") - 1
    assert printed[place] == "moved: rmrl/sums/clip.py:5:7-16:Compare:opposite:0 (killed then)"
    lost = printed.index("    value * 2  ->  value / 2")
    assert printed[lost - 1].startswith("survived now: rmrl/sums/clip.py:11:")
    assert printed[lost + 1] == "    killed then by tests/test_clip.py::test_doubled"


def test_a_second_run_goes_on_from_the_record_and_fails_where_too_few_die(project: Path) -> None:
    (project / "tests/test_clip.py").write_text(WEAK)
    assert mutants(project, "sums=2", "--record", "record.json").returncode == 0
    beginning = (project / "record.json").read_text()
    again = mutants(project, "sums=99", "--record", "record.json", "--least", "0.99")
    assert again.returncode == 1
    assert (project / "record.json").read_text().startswith(beginning)
    lines = (project / "record.json").read_text().splitlines()
    assert len(lines) == len(set(lines)) > 4
