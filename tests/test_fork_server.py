"""Processes forked from one that has imported what they need."""

from __future__ import annotations

import json
import os
import random
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.fork_server import ForkServer, start_fresh
from tests.patience import PATIENCE_S

LIGHT = ForkServer("tests.preload.light", lambda: {"OF_THE_SERVER": "1"})
BROKEN = ForkServer("tests.preload.broken")


def tell(path: str) -> None:
    """Write what this process is."""
    names = ("OF_THE_SERVER", "OF_THE_TEST")
    facts = {
        "parent": os.getppid(),
        "imported": "json.tool" in sys.modules,
        "environment": {name: os.environ[name] for name in names if name in os.environ},
        "draw": random.random(),
    }
    Path(path).write_text(json.dumps(facts))


def leave(_: str) -> None:
    os._exit(7)


def ended(process: BaseProcess) -> int | None:
    process.join(PATIENCE_S)
    return process.exitcode


def test_a_fork_has_the_imports_the_environment_and_a_seed_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    facts = []
    for value in ("a", "b"):
        monkeypatch.setenv("OF_THE_TEST", value)
        assert ended(LIGHT.start(tell, str(tmp_path / value))) == 0
        facts.append(json.loads((tmp_path / value).read_text()))
    first, second = facts
    assert first["environment"] == {"OF_THE_SERVER": "1", "OF_THE_TEST": "a"}
    assert second["environment"] == {"OF_THE_SERVER": "1", "OF_THE_TEST": "b"}
    assert "OF_THE_SERVER" not in os.environ
    assert first["imported"]
    assert first["parent"] == second["parent"] != os.getpid()
    assert first["draw"] != second["draw"]


def test_a_fresh_process_has_imported_nothing(tmp_path: Path):
    process = start_fresh(tell, str(tmp_path / "facts"), environment={"OF_THE_SERVER": "2"})
    assert ended(process) == 0
    facts = json.loads((tmp_path / "facts").read_text())
    assert facts["parent"] == os.getpid()
    assert not facts["imported"]
    assert facts["environment"] == {"OF_THE_SERVER": "2"}


def test_the_exit_code_of_a_fork_arrives():
    assert ended(LIGHT.start(leave, "")) == 7


def test_an_import_that_fails_is_named(capfd: pytest.CaptureFixture[str], tmp_path: Path):
    assert ended(BROKEN.start(tell, str(tmp_path / "facts"))) == 1
    assert "No module named 'rmrl.no_such_module'" in capfd.readouterr().err
