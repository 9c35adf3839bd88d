"""A process's Python stacks, threads and tasks, as text for an error message and for a file."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterable
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
"""The file that runs calls: frames inside one of its frames are the call's."""
_HIDDEN = "PythonGCThread"


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str
    code: str = ""
    """The source line, "" where there is no source."""

    def __str__(self) -> str:
        return f"{'/'.join(self.file.split('/')[-3:])}:{self.line} {self.function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One thread, or a call that waits on none; frames outermost first."""

    name: str
    frames: tuple[Frame, ...]

    @property
    def call(self) -> tuple[Frame, ...]:
        """The call's frames that the thread runs, () where it runs none."""
        for i in reversed(range(len(self.frames))):
            if self.frames[i].file.endswith(_CARRIER):
                return self.frames[i + 1 :]
        return ()

    @property
    def idle(self) -> bool:
        return not self.frames or self.frames[-1].file.endswith(_IDLE)

    def text(self) -> str:
        """Return the stack with its source lines, outermost frame first."""
        text = f"--- {self.name}"
        if self.call:
            text += " (runs a call)"
        for frame in self.frames:
            text += f'\n  File "{frame.file}", line {frame.line}, in {frame.function}'
            text += f"\n    {frame.code}"
        return f"{text}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStacks:
    """One process's stacks at one moment."""

    pid: int
    threads: tuple[Stack, ...]
    waiting: tuple[Stack, ...] = ()
    """Calls that wait for something on an event loop, frames of the object's own code alone."""

    def short(self) -> str:
        """Return the innermost frames for calls under way and other busy threads; one line each,
        innermost frame first."""
        calls = [stack.frames for stack in self.waiting]
        busy: list[tuple[Frame, ...]] = []
        for stack in self.threads:
            if stack.call:
                calls.append(stack.call)
            elif not stack.idle:
                busy.append(stack.frames)
        if not calls:
            return "waits for a call"
        lines: list[str] = []
        for frames in [*calls, *busy][:_SHOWN]:
            innermost = frames[::-1][:_INNERMOST]
            lines.append(" < ".join(map(str, innermost)))
        return "\n    ".join(lines)

    def whole(self) -> str:
        """Return every stack with its source lines, outermost frame first."""
        return "\n".join(map(Stack.text, (*self.waiting, *self.threads)))


def present_stacks(calls: Iterable[tuple[str, Any]] = ()) -> ProcessStacks:
    """Return this process's stacks, called from any thread.

    `calls`: name and coroutine (or async generator) for the calls on an event loop.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads: list[Stack] = []
    for ident, frame in sys._current_frames().items():  # pyright: ignore[reportPrivateUsage]
        name = names.get(ident, f"thread {ident}")
        if ident != threading.get_ident() and name != _HIDDEN:
            walk = list(traceback.walk_stack(frame))
            threads.append(Stack(name=name, frames=_frames(walk[::-1])))
    waiting: list[Stack] = []
    for name, call in calls:
        # A suspended coroutine or generator, outermost first, through the objects that it awaits.
        suspended: list[tuple[FrameType, int]] = []
        awaited = call
        while awaited is not None:
            frame = inner = None
            for frame_name, inner_name in _SUSPENDED:
                if hasattr(awaited, frame_name):
                    frame = getattr(awaited, frame_name)
                    inner = getattr(awaited, inner_name)
                    break
            if frame is not None:
                suspended.append((frame, frame.f_lineno))
            awaited = inner
        waiting.append(Stack(name=f"call of {name}", frames=_frames(suspended)))
    return ProcessStacks(pid=os.getpid(), threads=tuple(threads), waiting=tuple(waiting))


def write_stacks(
    folder: Path, what: str, stacks: Iterable[tuple[str, ProcessStacks | None]]
) -> Path:
    """Write all stacks to one file in `folder`, named by `what` and a number, and return its path.

    Processes that gave no answer (None) are named too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while (path := folder / f"{what}-{number}.txt").exists():
        number += 1
    parts: list[str] = []
    for name, stack in stacks:
        if stack is None:
            parts.append(f"=== {name}\nno answer\n")
        else:
            parts.append(f"=== {name} (pid {stack.pid})\n{stack.whole()}")
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def _frames(walk: Iterable[tuple[FrameType, int]]) -> tuple[Frame, ...]:
    summary = traceback.StackSummary.extract(iter(walk))
    return tuple(Frame(f.filename, f.lineno or 0, f.name, f.line or "") for f in summary)


_SUSPENDED = (("cr_frame", "cr_await"), ("ag_frame", "ag_await"), ("gi_frame", "gi_yieldfrom"))
"""Attributes of coroutines, async generators and generators: their frame and what they wait for."""
