"""Where a process stands: the Python stacks of its threads and tasks, as text for an error message
and for a file."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

_INNERMOST = 6
_SHOWN = 4
_IDLE = (
    "threading.py",
    "selectors.py",
    "queue.py",
    "concurrent/futures/thread.py",
    "ray/_private/worker.py",
)
"""Innermost files of threads that wait for work."""
_CARRIER = "rmrl/cluster/actors.py"
"""What runs a call: frames inside of it are the call's."""
_HIDDEN = "PythonGCThread"


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str
    code: str = ""
    """The source line; "" where there is no source."""

    def __str__(self) -> str:
        return f"{'/'.join(self.file.split('/')[-3:])}:{self.line} {self.function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One thread, or a call that waits on none; frames outermost first."""

    name: str
    frames: tuple[Frame, ...]

    @property
    def call(self) -> tuple[Frame, ...]:
        """The frames of the call that it runs; () where it runs none."""
        carriers = [i for i, frame in enumerate(self.frames) if frame.file.endswith(_CARRIER)]
        return self.frames[carriers[-1] + 1 :] if carriers else ()

    @property
    def idle(self) -> bool:
        return not self.frames or self.frames[-1].file.endswith(_IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStacks:
    """All stacks of one process at one moment."""

    pid: int
    threads: tuple[Stack, ...]
    waiting: tuple[Stack, ...] = ()
    """Calls that wait for something on an event loop, frames of the object's own code alone."""

    def short(self) -> str:
        """The innermost frames of the calls under way and, with them, of other busy threads; one
        line each, innermost frame first."""
        calls = [
            *(stack.frames for stack in self.waiting),
            *(stack.call for stack in self.threads if stack.call),
        ]
        busy = [stack.frames for stack in self.threads if not stack.call and not stack.idle]
        if not calls:
            return "waits for a call"
        return "\n    ".join(
            " < ".join(str(f) for f in frames[::-1][:_INNERMOST])
            for frames in [*calls, *busy][:_SHOWN]
        )

    def whole(self) -> str:
        """Every stack with its source lines, outermost frame first."""
        return "\n".join(_text(stack) for stack in (*self.waiting, *self.threads))


def present_stacks(calls: Iterable[tuple[str, Any]] = ()) -> ProcessStacks:
    """Of this process, from any of its threads. `calls`: name and coroutine (or async generator) of
    those on an event loop."""
    me, names = (
        threading.get_ident(),
        {thread.ident: thread.name for thread in threading.enumerate()},
    )
    threads = [
        Stack(name=names.get(ident, f"thread {ident}"), frames=_frames(_walk(frame)))
        for ident, frame in sys._current_frames().items()  # pyright: ignore[reportPrivateUsage]
        if ident != me and names.get(ident) != _HIDDEN
    ]
    waiting = [
        Stack(name=f"call of {name}", frames=_frames(list(_awaited(call))[::-1]))
        for name, call in calls
    ]
    return ProcessStacks(pid=os.getpid(), threads=tuple(threads), waiting=tuple(waiting))


def write_stacks(
    folder: Path, what: str, stacks: Iterable[tuple[str, ProcessStacks | None]]
) -> Path:
    """All of them in one file of `folder`, named by `what` and a number; processes that gave no
    answer are named too."""
    folder.mkdir(parents=True, exist_ok=True)
    path = next(p for n in range(1, sys.maxsize) if not (p := folder / f"{what}-{n}.txt").exists())
    parts = [
        f"=== {name}" + (f" (pid {s.pid})\n{s.whole()}" if s else "\nno answer\n")
        for name, s in stacks
    ]
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def _text(stack: Stack) -> str:
    lines = "".join(
        f'  File "{f.file}", line {f.line}, in {f.function}\n    {f.code}\n' for f in stack.frames
    )
    return f"--- {stack.name}{' (runs a call)' if stack.call else ''}\n{lines}"


def _walk(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    while frame is not None:
        yield frame, frame.f_lineno
        frame = frame.f_back


def _frames(walked: Iterable[tuple[FrameType, int]]) -> tuple[Frame, ...]:
    """Outermost first, given innermost first."""
    summary = traceback.StackSummary.extract(iter(list(walked)[::-1]))
    return tuple(Frame(f.filename, f.lineno or 0, f.name, f.line or "") for f in summary)


def _awaited(call: Any) -> Iterator[tuple[FrameType, int]]:
    """Frames of a suspended coroutine or generator, outermost first, through what it awaits."""
    while call is not None:
        frame, inner = next(
            ((getattr(call, f), getattr(call, i)) for f, i in _SUSPENDED if hasattr(call, f)),
            (None, None),
        )
        if frame is not None:
            yield frame, frame.f_lineno
        call = inner


_SUSPENDED = (("cr_frame", "cr_await"), ("ag_frame", "ag_await"), ("gi_frame", "gi_yieldfrom"))
"""Where coroutines, async generators and generators keep their frame and what they wait for."""
