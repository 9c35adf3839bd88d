"""Where a process stands, asked from another thread of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

from rmrl.cluster.stacks import Frame, ProcessStacks, Stack, present_stacks, write_stacks
from tests.patience import PATIENCE_S


def frames(*calls: str) -> tuple[Frame, ...]:
    return tuple(Frame(f"/lib/{call}.py", 7, call, f"{call}()") for call in calls)


CARRIER = (Frame("/ray/worker.py", 1, "execute"), Frame("/x/rmrl/cluster/actors.py", 50, "call"))
MAIN = Stack(name="main", frames=(*CARRIER, *frames("update", "all_reduce")))


def test_the_call_comes_first_and_idle_threads_are_left_out() -> None:
    idle = Stack(name="pool", frames=(*frames("run"), Frame("/usr/lib/threading.py", 327, "wait")))
    other = Stack(name="engine", frames=frames("step"))
    short = ProcessStacks(pid=1, threads=(idle, other, MAIN)).short()
    assert short.split("\n    ") == [
        "/lib/all_reduce.py:7 all_reduce < /lib/update.py:7 update",
        "/lib/step.py:7 step",
    ]


def test_without_a_call_under_way_it_says_so() -> None:
    assert (
        ProcessStacks(pid=1, threads=(Stack(name="engine", frames=frames("step")),)).short()
        == "waits for a call"
    )


def test_a_call_in_a_lock_of_the_library_is_a_call_all_the_same() -> None:
    locked = Stack(
        name="main",
        frames=(*CARRIER, *frames("update"), Frame("/usr/lib/threading.py", 327, "wait")),
    )
    assert (
        ProcessStacks(pid=1, threads=(locked,)).short()
        == "usr/lib/threading.py:327 wait < /lib/update.py:7 update"
    )


def stack_of(thread: str) -> Stack:
    return next(stack for stack in present_stacks().threads if stack.name == thread)


def test_a_thread_at_a_lock_is_found() -> None:
    gate, standing = threading.Lock(), threading.Event()

    def stand_at_the_gate() -> None:
        standing.set()
        with gate:
            pass

    with gate:
        thread = threading.Thread(target=stand_at_the_gate, name="visitor")
        thread.start()
        assert standing.wait(PATIENCE_S)
        while (stack := stack_of("visitor")).frames[-1].code != "with gate:":
            time.sleep(0.001)
    thread.join(PATIENCE_S)
    assert stack.frames[-1].function == "stand_at_the_gate"


async def test_suspended_calls_are_followed_to_what_they_await() -> None:
    async def inner() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    async def parts() -> AsyncIterator[int]:
        await inner()
        yield 1

    coroutine, generator = outer(), parts()
    tasks = asyncio.create_task(coroutine), asyncio.create_task(anext(generator))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    stacks = present_stacks([("outer", coroutine), ("parts", generator)])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [[frame.function for frame in stack.frames] for stack in stacks.waiting] == [
        ["outer", "inner", "wait"],
        ["parts", "inner", "wait"],
    ]
    assert "test_stacks.py" in stacks.short()


def test_the_file_names_every_process(tmp_path: Path) -> None:
    stacks = ProcessStacks(pid=4711, threads=(MAIN,))
    first = write_stacks(
        tmp_path / "stalls", "train.actor.update", [("train-0", stacks), ("train-1", None)]
    )
    second = write_stacks(tmp_path / "stalls", "train.actor.update", [])
    assert (first.name, second.name) == ("train.actor.update-1.txt", "train.actor.update-2.txt")
    text = first.read_text(encoding="utf-8")
    assert "=== train-0 (pid 4711)\n--- main (runs a call)\n" in text
    assert '  File "/lib/update.py", line 7, in update\n    update()\n' in text
    assert "=== train-1\nno answer" in text
