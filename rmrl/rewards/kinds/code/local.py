"""Runs of programs in the local sandbox: limits, deadlines, bounded output, and the end of a whole
family of processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import selectors
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.kinds.code import inside, orphans
from rmrl.rewards.kinds.code.bubblewrap import Bubblewrap, environment, find_bubblewrap
from rmrl.rewards.kinds.code.judge import judged
from rmrl.rewards.kinds.code.request import CodeRequest, Outcome, Program
from rmrl.rewards.kinds.code.syscalls import syscall_filter
from rmrl.rewards.kinds.shared.own_time import OwnTime, family_usage

_log = logging.getLogger(__name__)

MOST_OUTPUT_BYTES = 4 * 2**20
"""A program that writes more is ended."""
_MOST_ERROR_BYTES = 64 * 2**10
_FILE_BYTES = 32 * 2**20
_OPEN_FILES = 128
_MEASURE_EVERY_S = 0.1
_END_WAIT_S = 10.0
_TRIAL_WAIT_S = 120.0
_GRACE_S = 5.0
"""A tester reports by itself when the time is up; behind this it is ended."""


@cache
def _threads(workers: int) -> ThreadPoolExecutor:
    """One thread per program that may run at once, for all event loops. bubblewrap ends a program
    when the thread that started it does, so the threads stay."""
    return ThreadPoolExecutor(workers, thread_name_prefix="rmrl-sandbox")


@cache
def local_sandbox(python: str) -> Bubblewrap | str:
    """Return the sandbox of this machine, or a sentence on what is missing. Two programs are tried
    in it, once. `python`: see `find_bubblewrap`."""
    sandbox = find_bubblewrap(python)
    if isinstance(sandbox, str):
        return sandbox
    orphans.adopt()

    async def run(program: Program) -> Outcome:
        return _run(program, sandbox, threading.Event())

    asserts = {"form": "asserts", "tests": ["assert f(1) == 2"]}
    stdio = {"form": "stdio", "cases": [["1\n", "2\n"]]}
    function = CodeRequest(code="def f(x): return x + 1", tests=json.dumps(asserts))
    program = CodeRequest(code="print(int(input()) + 1)", tests=json.dumps(stdio))

    async def trials() -> list[ValueOutput]:
        return [await judged(function, run), await judged(program, run)]

    with ThreadPoolExecutor(1) as thread:
        for output in thread.submit(lambda: asyncio.run(trials())).result(_TRIAL_WAIT_S):
            if output.value != 1.0:
                reason = output.detail or dict(output.extra).get("first_failure", "")
                return f"a program that is right does not pass in bubblewrap here: {reason}"
    return sandbox


async def run_locally(program: Program, sandbox: Bubblewrap, *, workers: int) -> Outcome:
    """Run one program, at most `workers` of them at once. Cancelling ends it."""
    stop = threading.Event()
    future = _threads(workers).submit(_run, program, sandbox, stop)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        stop.set()
        raise


@dataclass(slots=True)
class _Started:
    """A sandbox that was started, with the descriptors of its output and its errors."""

    process: subprocess.Popen[bytes]
    first: int | None
    output: int
    errors: int
    ready: socket.socket | None = None
    """Gets a byte when the program starts. The tester writes a line instead."""


@dataclass(slots=True)
class _Family:
    """A running sandbox with the ends of its streams."""

    process: subprocess.Popen[bytes]
    first: int | None
    """Descriptor of the first process in the sandbox, None where it never started."""
    most_bytes: int
    """Memory of all processes together."""
    streams: dict[int, bytearray] = field(default_factory=dict)
    """Descriptor -> what was read from it."""

    def listen(self, allowed_s: float, stop: threading.Event) -> str:
        """Read until all streams end. Return why the program was broken off, else "".

        `allowed_s`: seconds of the sandbox's own time (`own_time`).
        """
        measured = time.monotonic()
        own = OwnTime(measured, _MEASURE_EVERY_S)
        ended: float | None = None
        with selectors.DefaultSelector() as selector:
            for descriptor in self.streams:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map():
                if stop.is_set():
                    return "cancelled"
                if time.monotonic() > measured + _MEASURE_EVERY_S:
                    measured = time.monotonic()
                    if own.look(measured, family_usage(self.process.pid)) >= allowed_s:
                        return "ran out of time"
                    if memory_of_family(self.process.pid) > self.most_bytes:
                        return f"used more than {self.most_bytes // 2**20} MB of memory"
                for key, _ in selector.select(_MEASURE_EVERY_S):
                    part = _part(key.fd)
                    if not part:
                        selector.unregister(key.fd)
                    self.streams[key.fd] += part
                    if len(self.streams[key.fd]) > MOST_OUTPUT_BYTES:
                        return f"wrote more than {MOST_OUTPUT_BYTES // 2**20} MiB"
                if ended is None and self.process.poll() is not None:
                    ended = time.monotonic()
                if ended is not None and time.monotonic() > ended + 1:
                    # A background process holds the streams open; what the program wrote is in
                    # them already.
                    return ""
        return ""

    def end(self) -> None:
        """Kill the first process in the sandbox, and the kernel ends all others of its process
        namespace. That it dies with bubblewrap is not enough: where a program runs as the user of
        bubblewrap, it can make that process forget to."""
        if self.first is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.first, signal.SIGKILL)
            _readable(self.first, _END_WAIT_S)
        self.process.kill()
        try:
            self.process.wait(_END_WAIT_S)
        except subprocess.TimeoutExpired:
            _log.warning(
                f"a sandbox (process {self.process.pid}) did not end within {_END_WAIT_S:g} s"
            )
        if self.first is not None:
            orphans.reap(self.first)


def memory_of_family(pid: int) -> int:
    """Return the bytes that a process and all its descendants hold, without mapped files. Memory
    that several of them share counts for each that uses it. A process that ends meanwhile
    counts 0."""
    total = 0
    waiting = [str(pid)]
    while waiting:
        folder = Path("/proc", waiting.pop())
        try:
            for line in folder.joinpath("status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) * 1024
            for task in folder.joinpath("task").iterdir():
                waiting += task.joinpath("children").read_text().split()
        except (OSError, ValueError):
            continue
    return total


def _run(program: Program, sandbox: Bubblewrap, stop: threading.Event) -> Outcome:
    if stop.is_set():
        return Outcome(failure="cancelled", detail="The program was cancelled before it started.")
    job: dict[str, Any] = {"source": program.source}
    if program.job is not None:
        job = dict(program.job)
    job["limits"] = _limits(program)
    refused = syscall_filter()
    if refused is not None:
        job["filter"] = refused.hex()
    allowed_s = 2 * program.time_s + _GRACE_S
    with contextlib.ExitStack() as stack:
        try:
            job["uid"] = stack.enter_context(sandbox.user())
            data = json.dumps(job).encode()
            if program.job is not None:
                started = _start_tests(data, sandbox, stack, allowed_s)
            else:
                started = _start_program(data, program.stdin, sandbox, stack)
        except OSError as error:
            return Outcome(failure="worker_lost", detail=f"The sandbox did not start: {error}.")
        streams = {started.output: bytearray(), started.errors: bytearray()}
        family = _Family(started.process, started.first, program.memory_mb * 2**20, streams)
        stack.callback(family.end)
        reason = family.listen(allowed_s, stop)
        family.end()
        runs = False
        if started.ready is not None:
            started.ready.settimeout(1)
            with contextlib.suppress(TimeoutError):
                runs = bool(started.ready.recv(1))
    stdout = family.streams[started.output].decode("utf-8", "replace")
    stderr = family.streams[started.errors][-_MOST_ERROR_BYTES:].decode("utf-8", "replace")
    if reason == "cancelled":
        return Outcome(failure="cancelled", detail="The program was cancelled.")
    if program.job is not None:
        runs = program.job["ready"] in stdout
    if not runs:
        last = stderr.strip().rpartition("\n")[2] or f"exit code {family.process.returncode}"
        return Outcome(failure="worker_lost", detail=f"The sandbox did not start: {last[:300]}.")
    problem = reason or _problem(family.process.returncode)
    return Outcome(stdout=stdout, stderr=stderr, problem=problem)


def _start_tests(
    data: bytes, sandbox: Bubblewrap, stack: contextlib.ExitStack, allowed_s: float
) -> _Started:
    """Start the tester with its job. One socket is its input and its output: unlike a pipe a socket
    cannot be opened a second time through /proc."""
    parent_end, child_end = socket.socketpair()
    stack.enter_context(parent_end)
    with child_end:
        command = sandbox.command("-c", inside.text(), "tests")
        process, first = _popen(command, child_end, child_end, stack=stack)
    errors = _errors(process, stack)
    parent_end.settimeout(allowed_s)
    with contextlib.suppress(OSError):
        # A sandbox that does not start is noticed by what it does not write.
        parent_end.sendall(data)
        parent_end.shutdown(socket.SHUT_WR)
    return _Started(process, first, parent_end.fileno(), errors)


def _start_program(
    data: bytes, stdin: str, sandbox: Bubblewrap, stack: contextlib.ExitStack
) -> _Started:
    """Start a program with its standard input as a file in memory.

    That it started is written to a socket that the program does not get: of its standard output it
    could read what is not fetched yet, and so pass for a program that never ran.
    """
    ready, child_end = socket.socketpair()
    stack.enter_context(ready)
    job = _file("job", data)
    stack.callback(os.close, job)
    stdin_fd = _file("stdin", stdin.encode("utf-8", "surrogatepass"))
    stack.callback(os.close, stdin_fd)
    with child_end:
        fds = (job, child_end.fileno())
        command = sandbox.command("-c", inside.text(), "program", *map(str, fds))
        process, first = _popen(command, stdin_fd, subprocess.PIPE, stack=stack, pass_fds=fds)
    errors = _errors(process, stack)
    assert process.stdout is not None
    stack.enter_context(process.stdout)
    return _Started(process, first, process.stdout.fileno(), errors, ready)


def _popen(
    command: list[str],
    stdin: Any,
    stdout: Any,
    *,
    stack: contextlib.ExitStack,
    pass_fds: tuple[int, ...] = (),
) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start bubblewrap. Return it and a descriptor of the first process in the sandbox, None where
    it ended without one."""
    info, info_end = os.pipe()
    stack.callback(os.close, info)
    try:
        process = subprocess.Popen(
            [command[0], "--info-fd", str(info_end), *command[1:]],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment(),
            cwd="/",
            start_new_session=True,
            pass_fds=(info_end, *pass_fds),
        )
    finally:
        os.close(info_end)
    # Written before bubblewrap lets that process go on.
    text = b""
    while b"}" not in text and _readable(info, _END_WAIT_S):
        part = os.read(info, 4096)
        if not part:
            break
        text += part
    try:
        first = os.pidfd_open(json.loads(text)["child-pid"])
    except (OSError, ValueError):
        return process, None
    stack.callback(os.close, first)
    return process, first


def _errors(process: subprocess.Popen[bytes], stack: contextlib.ExitStack) -> int:
    assert process.stderr is not None
    stack.enter_context(process.stderr)
    return process.stderr.fileno()


def _file(name: str, data: bytes) -> int:
    """A file in memory that holds `data`, at its beginning."""
    descriptor = os.memfd_create(name)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _readable(descriptor: int, wait_s: float) -> bool:
    """Whether a descriptor, of any number, can be read within that time or has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * wait_s))


def _part(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""


def _limits(program: Program) -> dict[str, int]:
    """Limits for every process of a program; `RLIMIT_NPROC` counts them together."""
    return {
        "RLIMIT_AS": program.memory_mb * 2**20,
        "RLIMIT_CPU": max(1, round(program.time_s)),
        "RLIMIT_FSIZE": _FILE_BYTES,
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": program.processes,
    }


def _problem(returncode: int | None) -> str:
    """How a program ended that did not end well. The sandbox reports a signal as 128 + its
    number."""
    if not returncode:
        return ""
    if returncode - 128 in (signal.SIGXCPU, signal.SIGKILL):
        return "ran out of time or memory"
    if returncode > 128:
        return f"was ended by signal {returncode - 128}"
    return f"ended with exit code {returncode}"
