"""The list of skipped tests at the end of a run, and the run that fails because it has grown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import skips

CONFTEST = """
import os
from pathlib import Path
from tests import skips

skips.TABLE = Path(__file__).parent / "table.json"

def pytest_configure(config):
    skips.register(config, os.environ)
"""
TESTS = """
import pytest

def test_one():
    pytest.skip("needs a GPU")

@pytest.mark.skipif(True, reason="needs a GPU")
def test_two():
    pass

def test_three():
    pytest.importorskip("no_such_module", reason="no such module")

@pytest.mark.xfail
def test_four():
    assert False

def test_five():
    pass
"""
WHOLE_FILE = "import pytest\npytest.skip('not today', allow_module_level=True)\n"
ALLOWED = {"needs a GPU": 2, "no such module": 1, "not today": 1}


@pytest.mark.parametrize(
    ("options", "changes", "problems"),
    [
        ([], {"needs a GPU": 3, "needs SGLang": 1}, []),
        (["-p", "xdist", "-n", "2"], {"needs a GPU": 1}, ["2 skipped, at most 1: needs a GPU"]),
        (["-p", "xdist", "-n", "2"], {"not today": 0}, ["1 skipped, at most 0: not today"]),
        ([], {"not today": 0}, None),
    ],
)
def test_a_run_fails_where_the_list_grows(
    tmp_path: Path, options: list[str], changes: dict[str, int], problems: list[str] | None
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_whole_file.py").write_text(WHOLE_FILE)
    (tmp_path / "table.json").write_text(json.dumps({**ALLOWED, **changes}))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "CI": "true", "PYTHONPATH": str(skips.REPOSITORY)}
    # Plugins take seconds to import.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # Counted, but not compared, where nobody asks for it.
    environment["RMRL_CHECK_SKIPS"] = "" if problems is None else "1"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = run.stdout.splitlines()
    for line in ("    2  needs a GPU", "    1  no such module", "    1  not today"):
        assert line in lines
    assert [line for line in lines if " skipped, at most " in line] == (problems or [])
    assert run.returncode == (1 if problems else 0), run.stdout
    assert "1 passed" in lines[-1]


def test_without_ci_nothing_is_listed(pytestconfig: pytest.Config) -> None:
    skips.register(pytestconfig, {"RMRL_CHECK_SKIPS": "1"})
    if os.environ.get("CI") != "true":
        assert not pytestconfig.pluginmanager.has_plugin("skips")


def test_a_reason_names_no_folder_of_this_machine() -> None:
    reason = f"Skipped: {skips.REPOSITORY}/.models/a is missing, and\n {skips.REPOSITORY.parent}/b"
    report = pytest.TestReport("a", ("a", 1, "a"), {}, "skipped", ("a.py", 1, reason), "call")
    assert skips.reason_of(report) == ".models/a is missing, and ../b"


def test_the_table_has_reasons_and_counts() -> None:
    table = json.loads(skips.TABLE.read_text())
    assert list(table) == sorted(table)
    for reason, count in table.items():
        assert isinstance(reason, str)
        assert isinstance(count, int)
        assert count > 0


def test_what_cannot_be_installed_is_a_sentence_and_no_failure(tmp_path: Path) -> None:
    for name in ("mktemp", "timeout", "tail", "rm", "bash"):
        path = shutil.which(name)
        assert path is not None
        (tmp_path / name).symlink_to(path)
    for name, text in {"curl": "", "apt-get": "echo no network; exit 100"}.items():
        (tmp_path / name).write_text(f"#!{tmp_path}/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    run = subprocess.run(
        ["bash", str(skips.REPOSITORY / "scripts" / "install_system.sh")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    if os.geteuid() == 0:
        assert run.stdout.count("[system] apt-get cannot install") == 2
        assert "bubblewrap (no network); the tests that need it are skipped" in run.stdout
    else:
        assert run.stdout.endswith("only root may do it, with apt-get: chromium bubblewrap\n")
