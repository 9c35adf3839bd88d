"""Servers that end with the process that started them."""

import os
import socket
import subprocess
import sys
import time

import psutil

from rmrl.inference.sglang.child_server import ChildServer
from tests.patience import PATIENCE_S
from tests.trainer.job import still_running, wait_for


def test_memory_and_last_words() -> None:
    child = ChildServer(
        [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"],
        os.environ,
    )
    wait_for(child.last_words, what="what it prints")
    assert child.last_words() == "ready"
    assert child.resident_bytes() > 2**20  # a Python of its own, and the guard
    child.stop()
    assert not child.alive()
    assert child.resident_bytes() == 0


def test_a_server_ends_when_its_starter_is_killed() -> None:
    code = (
        "import os, sys, time; sys.path.insert(0, os.getcwd())\nfrom rmrl.inference.sglang.child_server"
        " import ChildServer\nchild = ChildServer([sys.executable, '-c', 'import time;"
        " time.sleep(600)'], os.environ)\nimport psutil; guard = psutil.Process(child.pid)\n"
        "while not guard.children(): time.sleep(0.01)\n"
        "print(*[p.pid for p in guard.children()], flush=True); time.sleep(600)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    server = psutil.Process(int(starter.stdout.readline()))
    starter.kill()
    starter.wait()
    assert still_running([server]) == []


def test_a_server_that_ignores_the_request_to_end_is_killed() -> None:
    with socket.socket() as listener:  # tells when the child is deaf
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        code = (
            "import signal, socket, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            f"socket.create_connection(('127.0.0.1', {listener.getsockname()[1]})); time.sleep(600)"
        )
        child = ChildServer([sys.executable, "-c", code], os.environ, grace_s=0.3)
        listener.accept()[0].close()
    processes = psutil.Process(child.pid).children()
    assert len(processes) == 1
    begun = time.monotonic()
    child.stop()
    assert time.monotonic() - begun >= 0.3
    assert not child.alive()
    assert still_running(processes) == []
