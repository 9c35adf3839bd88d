"""Programs forked from a process that has imported what they need."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest

from tests.forks.servers import OF_RAY, ForkServer, environment_of, start_fresh
from tests.patience import PATIENCE_S

LIGHT = ForkServer("light", ("numpy", "json.tool"), lambda: {"OF_THE_SERVER": "1"})
BROKEN = ForkServer("broken", ("json", "rmrl.no_such_module"))


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


def run(*words: str, server: ForkServer = LIGHT, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **server.variables()},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **options,
    )


def start(code: str) -> subprocess.Popen[str]:
    """A program that prints its process number first."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", f"import os; print(os.getpid()); {code}"],
        env={**os.environ, **LIGHT.variables()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


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
    assert ended(BROKEN.start(tell, str(tmp_path / "facts"))) == 70
    assert "No module named 'rmrl.no_such_module'" in capfd.readouterr().err


PROGRAM = """
import json, os, sys
print("to stderr", file=sys.stderr)
facts = {
    "argv": sys.argv, "name": __name__, "path": sys.path[0], "folder": os.getcwd(),
    "read": sys.stdin.read(), "json.tool": "json.tool" in sys.modules,
}
print(json.dumps(facts))
"""


@pytest.mark.parametrize("form", ["script", "module", "code"])
def test_a_program_runs_as_python_runs_it(tmp_path: Path, form: str):
    """The same program with and without a server says the same of itself."""
    script = tmp_path / "told.py"
    script.write_text(PROGRAM)
    words = {"script": ["-u", str(script)], "module": ["-m", "told"], "code": ["-P", "-c", PROGRAM]}
    told = run(*words[form], "a", "-b", input="hello", cwd=tmp_path)
    plain = subprocess.run(
        [sys.executable, *words[form], "a", "-b"],
        capture_output=True,
        text=True,
        input="hello",
        cwd=tmp_path,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (told.returncode, told.stderr) == (plain.returncode, plain.stderr) == (0, "to stderr\n")
    facts, plain_facts = json.loads(told.stdout), json.loads(plain.stdout)
    assert facts.pop("json.tool") is True
    assert plain_facts.pop("json.tool") is False
    if form == "code":  # sys.path[0] is the first folder of PYTHONPATH
        del facts["path"], plain_facts["path"]
    assert facts == plain_facts
    assert facts["read"] == "hello"


ENDS = {
    "returns": ("print('x')", 0, ""),
    "sys.exit": ("import sys; sys.exit(300)", 44, ""),
    "a sentence": ("raise SystemExit('no rows')", 1, "no rows"),
    "an error": ("raise ValueError('half')", 1, "ValueError: half"),
    "a signal": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15, ""),
    "Ctrl-C": ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
    "atexit": ("import atexit; atexit.register(print, 'last')", 0, ""),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_as_python_ends_it(end: str):
    code, status, last_words = ENDS[end]
    told = run("-c", code)
    assert told.returncode == status
    assert last_words in told.stderr
    assert (told.stdout == "last\n") == (end == "atexit")


def test_signals_reach_the_fork():
    program = start("import signal; signal.pause()")
    assert int(first_line(program)) != program.pid
    program.send_signal(signal.SIGINT)
    assert program.wait(PATIENCE_S) == -signal.SIGINT
    assert "KeyboardInterrupt" in program.communicate()[1]


def test_a_fork_dies_with_the_process_that_was_started():
    program = start("import time; time.sleep(1000)")
    fork = psutil.Process(int(first_line(program)))
    program.kill()
    program.wait(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while fork.is_running() and fork.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)
    program.communicate()


def test_a_killed_fork_is_seen_where_it_was_started():
    program = start("import time; time.sleep(1000)")
    os.kill(int(first_line(program)), signal.SIGKILL)
    assert program.wait(PATIENCE_S) == -signal.SIGKILL
    program.communicate()


def test_open_files_keep_their_numbers(tmp_path: Path):
    with (tmp_path / "written").open("w") as file:
        code = f"import os; os.write({file.fileno()}, b'by the fork')"
        assert run("-c", code, pass_fds=[file.fileno()]).returncode == 0
    assert (tmp_path / "written").read_text() == "by the fork"


def test_a_program_with_other_variables_of_an_import_starts_anew(monkeypatch: pytest.MonkeyPatch):
    asks = "import os, sys; print('json.tool' in sys.modules)"
    assert run("-c", asks).stdout == "True\n"
    monkeypatch.setenv("VLLM_NO_SUCH_SETTING", "1")
    assert run("-c", asks).stdout == "False\n"


def test_a_variable_that_an_import_sets_is_set_in_the_fork():
    asks = "import os; print(os.environ.get('SET_BY_AN_IMPORT'))"
    server = ForkServer("setting", ("tests.forks.sets_a_variable",))
    assert run("-c", asks, server=server).stdout == "yes\n"


def test_behind_the_environment_of_forks_all_is_as_before_but_what_ray_keeps(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("RMRL_TEST_REPLACED", "before")
    monkeypatch.delenv("RMRL_TEST_INSIDE", raising=False)
    monkeypatch.setenv(OF_RAY, "disabled")
    with environment_of({"RMRL_TEST_REPLACED": "1", "RMRL_TEST_ADDED": "1"}):
        os.environ |= {"RMRL_TEST_INSIDE": "1", OF_RAY: "token"}
    assert os.environ["RMRL_TEST_REPLACED"] == "before"
    assert "RMRL_TEST_ADDED" not in os.environ
    assert "RMRL_TEST_INSIDE" not in os.environ
    assert os.environ[OF_RAY] == "token"
