"""A process that imports rules and forks workers with these imports. A hang then costs its time-out
and milliseconds.

It runs no rule itself, so no rule can make it hang or crash. It is a plain subprocess like every
worker, so a forked worker inherits nothing of the parent's. A rule whose import leaves threads
behind is refused, since a fork would copy their locks without them.

Frames are those of `rule.worker`. Downwards, pickled: ("import", source), ("reap", pid), or
("fork", None) and then one byte that carries a worker's socket and its standard output. Upwards,
JSON, one for each:

    ["ready", ""] or ["unfit", sentence]    the rule is imported, or why it cannot be forked with
    ["forked", pid]                         a zombie until it is reaped, so that its number stays
                                            reserved
    ["ended", code]                         as subprocess's returncode: negative for a signal
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import sys
from pathlib import Path
from typing import Any

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule.worker import HEADER, Rule, die_with, loaded, received, send, serve

_THREADS = Path("/proc/self/task")


def main(descriptor: int, parent: int) -> None:
    """Serve until the parent hangs up."""
    die_with(parent)
    os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=descriptor)
    rules: dict[FunctionSource, Rule] = {}
    while (data := _exactly(channel, HEADER.size)) is not None:
        what, subject = received(_exactly(channel, HEADER.unpack(data)[0]) or b"")
        if what == "import":
            send(channel, _import(subject, rules))
        elif what == "fork":
            _, descriptors, _, _ = socket.recv_fds(channel, 1, 2)
            send(channel, ["forked", _fork(channel, descriptors, rules)])
        else:
            send(channel, ["ended", os.waitstatus_to_exitcode(os.waitpid(subject, 0)[1])])


def _exactly(channel: socket.socket, count: int) -> bytes | None:
    """Read `count` bytes and none beyond: the byte after a frame may carry a socket.

    None: the parent hung up.
    """
    data = b""
    while len(data) < count:
        part = channel.recv(count - len(data))
        if not part:
            return None
        data += part
    return data


def _import(source: FunctionSource, rules: dict[FunctionSource, Rule]) -> list[Any]:
    try:
        rules[source] = loaded(source)
    except RewardFunctionError as error:
        return ["unfit", str(error)]
    threads = len(list(_THREADS.iterdir())) if _THREADS.is_dir() else 2
    if threads > 1:
        return ["unfit", f"importing {source} left {threads} threads"]
    gc.collect()
    # Pages shared with the workers stay shared: no collection writes to them.
    gc.freeze()
    return ["ready", ""]


def _fork(channel: socket.socket, ends: list[int], rules: dict[FunctionSource, Rule]) -> int:
    """Process id of a worker with a socket and a standard output, `ends`. It does not return in the
    worker itself."""
    worker_end, output = ends
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(worker_end)
        os.close(output)
        return pid
    try:
        os.setsid()
        die_with(parent)
        channel.close()
        os.dup2(output, 1)
        os.close(output)
        random.seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        os.set_inheritable(worker_end, False)
        with contextlib.suppress(OSError):
            serve(socket.socket(fileno=worker_end), rules)
    finally:
        os._exit(0)
