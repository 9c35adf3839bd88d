"""Tests do not depend on the shell that starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import expires
from tests.shell import SESSION_VARIABLE
from tests.trainer.job import SHARED_MEMORY, left_in_shared_memory, shared_memory

PROGRAM = """
import os, signal, subprocess, sys
import tests.conftest

def printed(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

# Without 32 and 33: a program that make has started ignores what the C library keeps for itself.
print(int(printed("grep", "SigIgn", "/proc/self/status").split()[1], 16) & 2**31 - 1)
print(printed("env").splitlines().count(f"RMRL_TEST_SESSION={os.getpid()}"))
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGHUP)
print("outlived its terminal")
"""


@pytest.mark.parametrize("ignored", ["INT HUP", "INT HUP PIPE", "INT QUIT TERM"])
def test_what_a_test_starts_heeds_signals_that_the_shell_ignores(ignored: str) -> None:
    """And the session itself ends with its terminal only where the shell does not say otherwise."""
    done = subprocess.run(
        ["sh", "-c", f'trap \'\' {ignored}; exec "$0" -c "$1"', sys.executable, PROGRAM],
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    outlives = ["outlived its terminal"] if "HUP" in ignored else []
    assert done.stdout.splitlines() == ["0", "1", *outlives], done.stderr


HOLDS = "import sys; file = open(sys.argv[1], 'x'); print('open', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    "session", [os.environ[SESSION_VARIABLE], "another"], ids=["own", "another"]
)
def test_a_file_in_shared_memory_that_another_session_has_open_is_not_left_here(
    session: str,
) -> None:
    before = shared_memory()
    path = SHARED_MEMORY / f"rmrl-shell-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)],
        env={**os.environ, SESSION_VARIABLE: session},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        left = left_in_shared_memory(before, of=path.name, within_s=expires(0.1))
        assert left == ({path.name} if session != "another" else set())
        assert left_in_shared_memory(before, of="no such name") == set()
        process.communicate(timeout=60)
        assert left_in_shared_memory(before, of=path.name, within_s=expires(0.1)) == {path.name}
    finally:
        process.kill()
        path.unlink(missing_ok=True)
