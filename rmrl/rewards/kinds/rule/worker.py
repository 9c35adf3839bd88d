"""The process that runs rules for `rule.pool`: reads chunks of calls from a socket and answers each
call.

Frames are a 4-byte big-endian length and that many bytes. Downwards: a pickled chunk `(source,
name of the reward, [pickled keyword arguments])`, the source None where the chunk before had it.
Upwards, JSON, so that nothing a rule executes can make the parent unpickle:
    ["start", t]                               the function is loaded; its first call starts at t
    ["done", status, value, detail, extra, t]  one call finished at t; the next one of the chunk
      starts then
    ["failed", sentence]                       the function cannot be loaded
t is `time.monotonic()`, one clock for all processes on a machine. Only the standard library is
imported before the rule is.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.dropin import FunctionSource, describe_exception
from rmrl.rewards.dropins.list_signatures import InLists
from rmrl.rewards.dropins.signatures import MisfitError, RuleForm, rule_form
from rmrl.rewards.dropins.verdict import check_verdict

HEADER = struct.Struct(">I")
BOOT = """import sys, json
sys.path[:] = json.loads(sys.argv[1])
from importlib import import_module
import_module(sys.argv[4]).main(int(sys.argv[2]), int(sys.argv[3]))"""
"""Program of a worker, run with `python -P -c BOOT <sys.path as JSON> <socket's descriptor>
<parent's pid> <this module>`."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

GROUP = "responses of a group"
"""Key of a call, and of its answer, with the entries of all responses to one prompt."""

Answer = tuple[str, float | None, str, dict[str, Any]]
"""status, value, detail, extra."""


def frame(data: bytes) -> bytes:
    """Prefix `data` with its length."""
    return HEADER.pack(len(data)) + data


def main(descriptor: int, parent: int) -> None:
    """Serve chunks until the parent hangs up."""
    die_with(parent)
    os.set_inheritable(descriptor, False)  # a rule's own children must not keep the socket open
    serve(socket.socket(fileno=descriptor), {})


def serve(channel: socket.socket, rules: dict[FunctionSource, Rule]) -> None:
    """Answer chunks until the parent hangs up; `rules` are those that are imported already.

    Processes of a rule that lose their own parent become children of this one, by which the pool
    finds and ends them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A pipe would keep lines back, and in a forked worker it was another file before.
    sys.stdout = os.fdopen(1, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    stream = channel.makefile("rb")
    own = os.getpid()
    printing = ""
    source: FunctionSource | None = None
    while len(header := stream.read(HEADER.size)) == HEADER.size:
        another, name, payloads = received(stream.read(HEADER.unpack(header)[0]))
        source = another or source
        assert source is not None
        if name != printing:
            printing = name
            with contextlib.suppress(OSError, ValueError):  # a rule may have closed its output
                sys.stdout.flush()
                os.write(1, f"\0{name}\n".encode())
        try:
            if source not in rules:
                rules[source] = loaded(source)
        except RewardFunctionError as error:
            send(channel, ["failed", str(error)])
            continue
        send(channel, ["start", time.monotonic()])
        for payload in payloads:
            status, value, detail, extra = rules[source].answer(payload)
            if os.getpid() != own:
                os._exit(0)  # a child that a rule forked and that returned: its parent answers
            send(channel, ["done", status, value, detail, extra, time.monotonic()])


def die_with(parent: int) -> None:
    """Make the kernel end this process with its parent, hung or not, and first of all when memory
    is short."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    if os.getppid() != parent:
        sys.exit(0)


def received(data: bytes) -> Any:
    """Unpickle a frame of the parent. Only data from the socket pair inherited from it may be read
    by this."""
    return pickle.loads(data)


def send(channel: socket.socket, message: list[Any]) -> None:
    """Send one message to the parent."""
    channel.sendall(frame(json.dumps(message).encode()))


def loaded(source: FunctionSource) -> Rule:
    """Load a rule. RewardFunctionError when it cannot be imported, or is no rule."""
    try:
        return Rule(rule_form(source.load(), str(source)), source.target)
    except SystemExit as error:
        raise RewardFunctionError(f"Importing {source} called sys.exit.") from error


@dataclass(frozen=True, slots=True)
class Rule:
    """An imported rule; `target` is its file or module."""

    form: RuleForm
    target: str

    def answer(self, payload: bytes) -> Answer:
        """Run one call; anything the function does, short of ending the process, is answered."""
        offered = received(payload)
        if GROUP not in offered:
            return self._one(offered)
        assert isinstance(self.form, InLists)
        try:
            returned = self.form.call_group(offered[GROUP])
            answers = [answer_of(entry, self._label) for entry in returned]
            json.dumps([extra for _, _, _, extra in answers])
        except BaseException:
            # One by one, so that only the faulty rows have no score.
            # As they came: the function may have changed what it was given.
            answers = list(map(self._one, received(payload)[GROUP]))
        return "ok", 0.0, "", {GROUP: list(map(list, answers))}

    @property
    def _label(self) -> str:
        function = self.form.function
        return getattr(function, "__name__", type(function).__name__)

    def _one(self, offered: Mapping[str, Any]) -> Answer:
        label = self._label
        try:
            answer = answer_of(self.form.call(offered), label)
            if answer[3]:
                json.dumps(answer[3])  # a value that JSON cannot carry is an error of the rule
            return answer
        except MisfitError as error:
            return "user_error", None, f"{label} {error}", {}
        # a rule may raise SystemExit, a timeout class of its own, anything
        except BaseException as error:
            if self.target.endswith(".py"):
                file = self.target
            else:
                file = getattr(sys.modules.get(self.target), "__file__", None) or ""
            return "user_error", None, f"{label} raised {describe_exception(error, file)}", {}


def answer_of(returned: Any, label: str) -> Answer:
    """Return a rule's result as a message: "ok", "unparseable" (None: no verdict) or
    "user_error"."""
    verdict = check_verdict(returned)
    extra: dict[str, Any] = plain(verdict.extra)
    if verdict.value is not None:
        return "ok", verdict.value, "", extra
    if verdict.problem:
        return "user_error", None, f"{label} {verdict.problem}", extra
    return "unparseable", None, f"{label} returned None: no verdict", extra


def plain(value: Any) -> Any:
    """Convert `value` for JSON: numpy scalars and arrays become numbers and lists, unknown objects
    their str()."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(map(plain, value))
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)
