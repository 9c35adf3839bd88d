"""Two workers of slow tests see neither each other's processes nor each other's shared memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "isolated_python.sh"
PROGRAM = """
import json, os, pathlib, sys
import psutil
pathlib.Path("/dev/shm/own").touch()
names = sorted(process.name() for process in psutil.process_iter())
print(json.dumps({
    "arguments": sys.argv[1:],
    "shared memory": os.listdir("/dev/shm"),
    "ray": os.listdir("/tmp/ray"),
    "strangers": [name for name in names if name not in {"bash"} and "python" not in name],
}))
sys.exit(7)
"""


@pytest.fixture(scope="module")
def isolated() -> subprocess.CompletedProcess[str]:
    allowed = subprocess.run([SCRIPT, "-c", "pass"], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip("the system refuses namespaces")
    return subprocess.run(
        [SCRIPT, "-c", PROGRAM, "one", "two three"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_it_sees_its_own_processes_and_shared_memory_alone(
    isolated: subprocess.CompletedProcess[str],
):
    facts = json.loads(isolated.stdout)
    assert facts["shared memory"] == ["own"]
    assert facts["ray"] == []
    assert facts["strangers"] == []
    assert not Path("/dev/shm/own").exists()


def test_arguments_and_the_exit_code_pass_through(isolated: subprocess.CompletedProcess[str]):
    assert json.loads(isolated.stdout)["arguments"] == ["one", "two three"]
    assert isolated.returncode == 7
