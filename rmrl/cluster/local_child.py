"""The process behind `rmrl.cluster.local`: builds one object and runs its methods, one after
another, for the parent that started it.

Both directions carry pickles over a socket pair that only this process and its parent hold, through
`multiprocessing.connection`:
    down   (number, method, args, kwargs); the method MAKE builds the object of (factory, settings)
    up     (number, True, result) or (number, False, error); before it, while the call advances,
           (number, None, progress), at most one per REPORT_S
"""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from rmrl.cluster.process_tree import end_after
from rmrl.errors import InfrastructureError, RmrlError
from rmrl.registry import load_attribute
from rmrl.startup import quick_imports

REPORT_S = 1.0
GRACE_S = 10.0
"""Seconds that a call may go on for after the parent has ended."""
MAKE = ""
"""Stands for a method: build the object."""
BOOT = """import sys, json
sys.path[:] = json.loads(sys.argv[1])
from importlib import import_module
import_module(sys.argv[3]).main(int(sys.argv[2]))"""
"""Program of the process, run with `python -P -c BOOT <sys.path as JSON> <socket's descriptor>
<this module>`."""


def main(descriptor: int) -> None:
    """Answer calls until the parent hangs up."""
    os.set_inheritable(descriptor, False)
    # Nobody waits for the answer then, and the next run needs the memory.
    threading.Thread(target=end_after, args=(descriptor, GRACE_S), daemon=True).start()
    with Connection(descriptor) as parent, suppress(EOFError, ConnectionError):
        serve(parent)


def serve(parent: Connection[Any, Any]) -> None:
    """Serve the parent's calls. Raises EOFError when the parent has closed the connection."""
    instance: Any = None
    while True:
        number, method, args, kwargs = parent.recv()
        try:
            if method == MAKE:
                factory, settings = args
                with quick_imports():
                    make: Any = load_attribute(factory)
                instance = make(**settings)
                answer: tuple[int, bool, Any] = (number, True, os.getpid())
            else:
                with _reporting(parent, number, instance):
                    result = getattr(instance, method)(*args, **kwargs)
                answer = (number, True, result)
        except Exception as error:
            answer = (number, False, _portable(error, method))
        parent.send(answer)


@contextmanager
def _reporting(parent: Connection[Any, Any], number: int, instance: Any) -> Iterator[None]:
    """Send the progress that the call makes in the block, on a thread that is the only one to send
    then."""
    if not callable(getattr(instance, "progress", None)):
        yield
        return
    ended = threading.Event()
    before = instance.progress()

    def report() -> None:
        reported = 0
        with suppress(OSError):  # the parent has hung up
            while not ended.wait(REPORT_S):
                progress = instance.progress() - before
                if progress > reported:
                    parent.send((number, None, progress))
                    reported = progress

    reports = threading.Thread(target=report, daemon=True)
    reports.start()
    try:
        yield
    finally:
        ended.set()
        reports.join()


def _portable(error: Exception, method: str) -> RmrlError:
    """The error as the parent can read it: ours unchanged, any other as an InfrastructureError with
    its stack."""
    if isinstance(error, RmrlError):
        with suppress(pickle.PicklingError, TypeError, AttributeError):
            pickle.dumps(error)
            return error
    stack = "".join(traceback.format_exception(error)).rstrip()
    return InfrastructureError(f"{method} failed: {type(error).__name__}: {error}\n{stack}")
