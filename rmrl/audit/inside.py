"""The process in which a rule is called under conditions: a seed, another hour, alone or after
other rows. What the rule does beside answering is noted.

Frames as in `rmrl.rewards.kinds.rule.worker`: a pickled job from the parent that started this
process on standard input, JSON lines on standard output. The rule is loaded and called in forks:
each condition begins as if no row had been before it.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import json
import os
import pickle
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmrl.errors import RewardFunctionError
from rmrl.rewards.kinds.rule.worker import Rule, loaded, received

_PR_SET_CHILD_SUBREAPER = 36
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_QUIET = ("/dev/", "/proc/", "/sys/")

Lines = Iterator[Any]


def main() -> None:
    """Answer one job: {source, payloads, conditions, timeout_s}. SIGTERM ends the forks, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    job = received(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of the rule are counted in the forks
    conditions: Sequence[Mapping[str, Any]] = job["conditions"]
    shifted = [condition for condition in conditions if condition["shift_s"]]
    for condition in shifted:
        # The clock is set before the rule is loaded, which may keep functions of it.
        answers = in_fork(lambda each=condition: _at_another_hour(job, each), job["load_s"])
        _write(out, condition["name"], list(answers))
    try:
        rule = loaded(job["source"])
    except RewardFunctionError as error:
        _write(out, "failed", [str(error)])
        return
    for condition in conditions:
        if not condition["shift_s"]:
            _write(out, condition["name"], list(_answers(rule, job, condition)))


def _write(out: Any, name: str, answers: Sequence[Any]) -> None:
    out.write(json.dumps([name, answers]) + "\n")
    out.flush()


def _at_another_hour(job: Mapping[str, Any], condition: Mapping[str, Any]) -> Lines:
    shift_clock(condition["shift_s"])
    yield from _answers(loaded(job["source"]), job, condition)


def _answers(rule: Rule, job: Mapping[str, Any], condition: Mapping[str, Any]) -> Lines:
    """Yield [status, value, detail, facts] of each call, in the condition's order."""
    payloads = [job["payloads"][position] for position in condition["order"]]
    if condition["no_text"]:
        payloads = [pickle.dumps(received(each) | {"solution_str": None}) for each in payloads]
    seconds = job["timeout_s"]
    seed = condition["seed"]
    if condition["alone"]:
        for payload in payloads:
            answers = list(in_fork(lambda each=payload: [_call(rule, each, seed)], seconds))
            yield answers[0] if answers else ["worker_lost", None, "the process ended", {}]
        return
    yield from in_fork(lambda: (_call(rule, payload, seed) for payload in payloads), seconds)


def _call(rule: Rule, payload: bytes, seed: int) -> list[Any]:
    """Answer one call, and say what else it did."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    deeds = Deeds()
    before = _printed()
    begun = time.perf_counter()
    with deeds:
        status, value, detail, _ = rule.answer(payload)
    took = time.perf_counter() - begun
    sys.stdout.flush()
    facts = deeds.facts()
    facts["printed"] = _printed() - before
    facts["seconds"] = took
    return [status, value, detail, facts]


def _printed() -> int:
    """Return the bytes on standard output so far, which is a file in the forks."""
    return os.lseek(1, 0, os.SEEK_CUR)


class Deeds:
    """Notes a block's files, connections and processes, by Python's audit events
    (docs.python.org/3/library/audit_events.html)."""

    current: Deeds | None = None
    hooked = False

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.hosts: set[str] = set()
        self.processes = 0

    def __enter__(self) -> Deeds:
        if not Deeds.hooked:
            sys.addaudithook(_note)
            Deeds.hooked = True
        Deeds.current = self
        return self

    def __exit__(self, *error: object) -> None:
        Deeds.current = None

    def facts(self) -> dict[str, Any]:
        """Return the files that are still there, the hosts, the processes that were started and
        those that live on."""
        left = [name for name in sorted(self.files) if Path(name).exists()]
        return {
            "files": left,
            "hosts": sorted(self.hosts),
            "processes": self.processes,
            "left": _living_children(),
        }

    def add(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note one event."""
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            mode, flags = arguments[1], arguments[2] or 0
            name = str(Path(os.fsdecode(arguments[0])).absolute())
            writes = flags & _WRITING or set(mode or "") & set("wax+")
            if writes and not name.startswith(_QUIET) and "__pycache__" not in name:
                self.files.add(name)
        elif event == "socket.connect" and not isinstance(arguments[1], str | bytes):
            self.hosts.add(str(arguments[1][0]))
        elif event == "socket.getaddrinfo":
            self.hosts.add(str(arguments[0]))
        elif event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"):
            self.processes += 1


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if Deeds.current is not None:
        Deeds.current.add(event, arguments)


def _living_children() -> int:
    """Return how many processes below this one have not ended."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
        return len(children.split())
    return 0


def in_fork(work: Callable[[], Any], seconds: float) -> Lines:
    """Yield what `work` yields in a fork of this process, until it ends or takes longer than
    `seconds` for one value: that gets the status "timeout"."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        code = 1
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            os.setsid()
            scratch = os.memfd_create("printed")
            os.dup2(scratch, 1)
            sys.stdout.reconfigure(line_buffering=False)  # type: ignore[union-attr]
            for answer in work():
                os.write(writing, json.dumps(answer).encode() + b"\n")
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    try:
        yield from _received(reading, seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _received(reading: int, seconds: float) -> Lines:
    """Yield the fork's lines."""
    rest = b""
    while True:
        ready, _, _ = select.select([reading], [], [], seconds)
        chunk = os.read(reading, 65536) if ready else b""
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        yield from map(json.loads, lines)
        if not ready:
            yield ["timeout", None, f"no answer within {seconds:g} s", {}]
        if not chunk:
            return


def shift_clock(seconds: float) -> None:
    """Let the clocks of `time` and `datetime` show another moment."""
    now, now_ns, local, utc = time.time, time.time_ns, time.localtime, time.gmtime
    shape = time.strftime
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)
    time.localtime = lambda at=None: local(at or time.time())
    time.gmtime = lambda at=None: utc(at or time.time())
    time.strftime = lambda form, at=None: shape(form, at or time.localtime())
    real = datetime.datetime

    class Shifted(real):
        """`datetime` at the other moment."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return real.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    class Day(datetime.date):
        """`date` at the other moment."""

        @classmethod
        def today(cls) -> Any:
            return real.fromtimestamp(time.time()).date()

    datetime.datetime = Shifted  # type: ignore[misc]
    datetime.date = Day  # type: ignore[misc]


if __name__ == "__main__":
    main()
