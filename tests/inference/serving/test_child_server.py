"""Servers that end with the process that started them."""

import os
import socket
import subprocess
import sys
import time

import psutil

from rmrl.inference.sglang.child_server import ChildServer, free_port


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))


def test_memory_and_last_words() -> None:
    child = ChildServer(
        [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"],
        os.environ,
    )
    deadline = time.monotonic() + 10
    while not child.last_words() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert child.last_words() == "ready"
    assert child.resident_bytes() > 2**20  # a Python of its own, and the guard
    child.stop()
    assert not child.alive()
    assert child.resident_bytes() == 0


def test_a_server_ends_when_its_starter_is_killed() -> None:
    code = (
        "import os, sys, time; sys.path.insert(0, os.getcwd())\nfrom rmrl.inference.sglang.child_server"
        " import ChildServer\nchild = ChildServer([sys.executable, '-c', 'import time;"
        " time.sleep(60)'], os.environ); time.sleep(0.5)\nimport psutil; print(*[p.pid for p in"
        " psutil.Process(child.pid).children()], flush=True); time.sleep(60)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    server = psutil.Process(int(starter.stdout.readline()))
    starter.kill()
    starter.wait()
    assert psutil.wait_procs([server], timeout=8)[1] == []


def test_a_server_that_ignores_the_request_to_end_is_killed() -> None:
    with socket.socket() as listener:  # tells when the child is deaf
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(10)
        code = (
            "import signal, socket, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            f"socket.create_connection(('127.0.0.1', {listener.getsockname()[1]})); time.sleep(60)"
        )
        child = ChildServer([sys.executable, "-c", code], os.environ, grace_s=0.3)
        listener.accept()[0].close()
    processes = psutil.Process(child.pid).children()
    assert len(processes) == 1
    begun = time.monotonic()
    child.stop()
    assert 0.3 <= time.monotonic() - begun < 4
    assert not child.alive()
    assert psutil.wait_procs(processes, timeout=5)[1] == []
