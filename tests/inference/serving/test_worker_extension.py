"""Worker processes of an engine end when the process that holds the engine has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import psutil

from rmrl.inference.vllm.worker_extension import WorkerExtension
from tests.trainer.job import still_running

CHILD = (
    "import sys, threading, time\n"
    "from rmrl.inference.vllm.worker_extension import end_after_parent\n"
    "threading.Thread(target=end_after_parent, args=(int(sys.argv[1]), 0.1), daemon=True).start()\n"
    "time.sleep(600)\n"
)
PARENT = (
    "import os, subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())])\n"
    "print(child.pid, flush=True)\n"
    "child.wait()\n"
)


def test_a_worker_that_stays_in_its_shutdown_is_killed_once_its_parent_has_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert still_running([child]) == []


def test_a_worker_in_the_process_of_its_engine_is_left_alone() -> None:
    threads = threading.active_count()
    WorkerExtension().end_with_parent(os.getpid())
    assert threading.active_count() == threads
