"""`rmrl doctor` as a user runs it."""

from __future__ import annotations

import json
import time

import pytest

from rmrl import doctor
from rmrl.doctor import child
from rmrl.doctor.finding import Finding
from rmrl.errors import RmrlError
from rmrl.main_doctor import main
from rmrl.registry import Registry
from tests.patience import expires


def bad() -> list[Finding]:
    return [Finding("problem", "it is broken", "mend it")]


def fails() -> None:
    raise ValueError("no such thing")


def echoes(text: str) -> dict[str, str]:
    print("noise")
    return {"text": text}


def hangs() -> None:
    time.sleep(600)


def test_findings_as_lines_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "storage"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=1)[0] in ("ok", "note")
    assert " cores, " in lines[0]
    assert lines[-1] == "ready"
    assert main(["machine", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert {"level", "text", "advice"} == set(findings[0])


def test_a_problem_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table: Registry[doctor.Check] = Registry("check", {"machine": f"{__name__}:bad"})
    monkeypatch.setattr("rmrl.doctor.CHECKS", table)
    assert main(["machine"]) == 2
    assert "problem  it is broken; mend it" in capsys.readouterr().out


def test_a_check_that_cannot_be_imported_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch without its libraries, for example."""
    table: Registry[doctor.Check] = Registry(
        "check", {"devices": "nothing_of_this_name:check", "machine": f"{__name__}:bad"}
    )
    monkeypatch.setattr("rmrl.doctor.CHECKS", table)
    assert main(["devices", "machine"]) == 2
    out = capsys.readouterr().out
    assert "problem  devices: ModuleNotFoundError: No module named 'nothing_of_this_name'" in out
    assert "it is broken" in out


def test_an_unknown_check_is_refused_before_any_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "rai"]) == 2
    shown = capsys.readouterr()
    assert "did you mean 'ray'" in shown.err
    assert "cores" not in shown.out


def test_a_check_in_a_process_of_its_own_answers_fails_or_is_ended() -> None:
    here = "tests.doctor.test_main_doctor"
    answer = child.run(f"{here}:echoes", "a b", deadline_s=60, environment={})
    assert answer == {"text": "a b"}
    with pytest.raises(RmrlError, match="ValueError: no such thing"):
        child.run(f"{here}:fails", deadline_s=60, environment={})
    start = time.monotonic()
    with pytest.raises(RmrlError, match="no answer within 3 s"):
        child.run(f"{here}:hangs", deadline_s=expires(3), environment={})
    assert time.monotonic() - start < 60


def test_without_a_traceback_the_exit_code_is_named() -> None:
    assert child.last_error([], code=-9) == "exit code -9"
    assert child.last_error(["Traceback", "  File x", "KeyError: 'a'", " "], code=1) == (
        "KeyError: 'a'"
    )
