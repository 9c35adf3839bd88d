"""The tester's side of the candidate's process."""

from __future__ import annotations

import builtins
import importlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from rmrl.rewards.kinds.code.inside.candidate import MOST_DETAIL
from rmrl.rewards.kinds.code.inside.values import Codec, containers

LOOK_S = 0.1
MOST_VALUES = 1_000_000
"""Values that are taken from an iterator of a test."""
ADDRESSES = ("__array", "__cuda_array", "__dlpack", "__arrow_c")
"""Beginnings of the attributes in which libraries look for places in memory: those of another
process, or whatever the candidate names, would be read in the tester."""


class GoneError(BaseException):
    """The candidate's process has ended, or its time is up. No `except Exception` of a test takes
    it for an error of the candidate."""


class TestsError(BaseException):
    """A test hands over a value that cannot be sent to the candidate."""


class Far:
    """An object of the candidate. Equality is identity and truth is True: no code of the candidate
    compares, and `in` compares the items here."""

    def __init__(self, link: Link, number: int) -> None:
        object.__setattr__(self, "_far", (link, number))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        link, number = object.__getattribute__(self, "_far")
        return link.call(number, arguments, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(ADDRESSES):
            raise AttributeError(name)
        link, number = object.__getattribute__(self, "_far")
        return link.ask({"do": "get", "object": number, "name": name})

    def __setattr__(self, name: str, value: Any) -> None:
        link, number = object.__getattribute__(self, "_far")
        link.ask({"do": "set", "object": number, "name": name, "value": link.pack(value)})

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return operation(self, "len")

    def __getitem__(self, key: Any) -> Any:
        return operation(self, "item", key)

    def __iter__(self) -> Any:
        return operation(self, "iter")


class FarIterator(Far):
    """An iterator of the candidate. Every value is fetched when it is wanted."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return operation(self, "next")


def operation(far: Far, name: str, *arguments: Any) -> Any:
    """Return what an operation on an object of the candidate gives."""
    link, number = object.__getattribute__(far, "_far")
    packed = [link.pack(each) for each in arguments]
    return link.ask({"do": name, "object": number, "arguments": packed})


class Link(Codec):
    """The candidate's process as the tester sees it."""

    def __init__(self, job: Any) -> None:
        super().__init__()
        self.sent = 0
        """Messages so far."""
        self.gone = ""
        """How the candidate ended, if it did."""
        self.unfit = ""
        """What a test did that cannot be carried, if one did."""
        self.left_s = float(job["wall_s"])
        """Seconds for which the candidate is still waited for."""
        request_fd, self.requests = os.pipe()
        self.answers, answer_fd = os.pipe()
        command = [
            sys.executable,
            "-B",
            "-c",
            job["inside"],
            "candidate",
            str(request_fd),
            str(answer_fd),
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(request_fd, answer_fd),
        )
        os.close(request_fd)
        os.close(answer_fd)
        self.received = bytearray()
        self.far: dict[tuple[str, int], Far] = {}
        """Kind and number of a candidate's object -> what stands for it here."""

    def pack_other(self, value: Any) -> Any:
        """Return rarer values as data, and objects of the candidate as their number."""
        return self.pack_object(value) if isinstance(value, Far) else super().pack_other(value)

    def pack_iterator(self, value: Any) -> Any:
        """Return the values of a test's iterator."""
        return ["g", [self.pack(each) for each in itertools.islice(value, MOST_VALUES)]]

    def pack_object(self, value: Any) -> Any:
        """Return the number of a candidate's object. Raises TestsError for any other."""
        if isinstance(value, Far):
            return ["o", object.__getattribute__(value, "_far")[1]]
        self.unfit = "the test hands over a value of type " + type(value).__name__
        raise TestsError(self.unfit)

    def unpack_object(self, tag: str, content: Any) -> Any:
        """Return an object of the candidate, or a module of the standard library."""
        if tag == "o" and isinstance(content, int):
            return self.far.setdefault((tag, content), Far(self, content))
        if tag == "i" and isinstance(content, int):
            return self.far.setdefault((tag, content), FarIterator(self, content))
        if tag == "m" and content in (*sys.stdlib_module_names, "numpy"):
            return importlib.import_module(content)
        raise ValueError(tag)

    def call(self, number: int, arguments: Any, named: Any) -> Any:
        """Call an object; lists, dicts, sets and deques in the arguments get what it left there."""
        request = {
            "do": "call",
            "object": number,
            "arguments": [self.pack(each) for each in arguments],
            "named": {name: self.pack(each) for name, each in named.items()},
        }
        answer = self.exchange(request)
        self.shared = containers([list(arguments), named])
        try:
            return self.unpack(answer["value"])[0]
        finally:
            self.shared = []

    def ask(self, request: Any) -> Any:
        """Return an answer's value."""
        answer = self.exchange(request, ends=request["do"] == "next")
        return self.unpack(answer["value"])

    def exchange(self, message: Any, *, ends: bool = False) -> Any:
        """Send one message and return the answer. Raises the exception that the candidate raised,
        as its nearest builtin class, and GoneError where it is gone. `ends`: the candidate may
        raise StopIteration; elsewhere it is a RuntimeError, as it would end a loop of the test."""
        self.sent += 1
        self.write((json.dumps(message) + "\n").encode())
        answer = json.loads(self.line())
        if "error" not in answer:
            return answer
        error = self.raised(answer)
        if isinstance(error, StopIteration) and not ends:
            raise RuntimeError("StopIteration: " + str(error))
        raise error

    def raised(self, answer: Any) -> Exception:
        """Return the exception in an answer, with its arguments where they give the same text."""
        name, text = answer["error"]
        kind = getattr(builtins, str(answer["kind"]), None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            return RuntimeError(str(name) + ": " + str(text))
        try:
            error = kind(*[self.unpack(each) for each in answer["arguments"]])
            return error if str(error)[:MOST_DETAIL] == text else kind(text)
        except Exception:
            return RuntimeError(str(name) + ": " + str(text))

    def lost(self, reason: str) -> GoneError:
        """Return the error of a candidate that is gone. Tests that catch it fail all the same."""
        self.gone = self.gone or reason
        return GoneError(self.gone)

    def ready(self, readers: Any, writers: Any) -> bool:
        """Wait until one of the descriptors can be used. False: the time is up. Of a pause of the
        machine, in which this process does not run either, at most 2 * LOOK_S count."""
        while self.left_s > 0:
            begun = time.monotonic()
            usable = select.select(readers, writers, [], min(self.left_s, LOOK_S))
            self.left_s -= min(time.monotonic() - begun, 2 * LOOK_S)
            if usable[0] or usable[1]:
                return True
        return False

    def write(self, data: bytes) -> None:
        """Send bytes. The candidate may not be reading."""
        os.set_blocking(self.requests, False)
        while data:
            if not self.ready([], [self.requests]):
                raise self.lost("ran out of time")
            try:
                data = data[os.write(self.requests, data) :]
            except OSError:
                raise self.lost(self.end()) from None

    def line(self) -> bytes:
        """Return the next line of the candidate's process."""
        searched = 0
        while True:
            end = self.received.find(b"\n", searched)
            searched = len(self.received)
            if end >= 0:
                line = bytes(self.received[:end])
                del self.received[: end + 1]
                return line
            if not self.ready([self.answers], []):
                raise self.lost("ran out of time")
            part = os.read(self.answers, 1 << 16)
            if not part:
                raise self.lost(self.end())
            self.received += part

    def end(self) -> str:
        """Return how the process ended."""
        try:
            code = self.process.wait(max(0.1, min(2.0, self.left_s)))
        except subprocess.TimeoutExpired:
            return "ended the tests"
        if code == -signal.SIGXCPU or code == -signal.SIGKILL:
            return "ran out of time or memory (signal " + str(-code) + ")"
        return "ended with exit code " + str(code) + " before the tests did"
