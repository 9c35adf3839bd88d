"""Imports modules, then forks a process for each client.

    python -m tests.forks.server SOCKET MODULE ...

SOCKET is the number of an open socket that listens. The server ends when its standard input does.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from tests.forks import program
from tests.forks.hook.rmrl_fork_client import receive

HANDLES = 250
"""A message carries 253 open files at most."""
SAFE_THREADS = {"jemalloc_bg_thd"}
"""Arrow's allocator stops its thread before a fork and starts it again in the child when needed."""
NOT_IMPORTED = "ray"
"""Reads its settings from the environment when it is imported: a program imports it itself."""
READ_AT_IMPORT = (
    *("HF_", "LD_", "MALLOC_", "PYTHONHASHSEED", "PYTORCH_", "TORCH", "TRANSFORMERS_"),
    "VLLM_",
)
"""Beginnings of variables that matter while modules are imported: a program that has others than
the server is not forked."""


def load(modules: list[str]) -> None:
    """Import, and see to it that forks may be made."""
    sys.modules[NOT_IMPORTED] = None  # type: ignore[assignment]
    for name in modules:
        importlib.import_module(name)
    del sys.modules[NOT_IMPORTED]
    main = str(os.getpid())
    for thread in Path("/proc/self/task").iterdir():
        name = (thread / "comm").read_text().strip()
        # A thread does not live on in a fork, and what it held stays locked there.
        assert thread.name == main or name in SAFE_THREADS, f"{name} runs, so forks may hang"
    gc.collect()
    gc.freeze()  # what is imported stays shared: a collection would write into every page


class Server:
    """Forks for each client."""

    def __init__(self, listener: socket.socket, modules: list[str]) -> None:
        self.listener = listener
        self.variables = dict(os.environ)
        load(modules)
        self.set_by_imports = dict(os.environ.items() - self.variables.items())
        """Variables that modules have set while they were imported."""
        self.clients: dict[int, socket.socket] = {}
        """Process number of each fork -> who asked for it."""
        self.ends, self.write_ends = os.pipe()
        os.set_blocking(self.write_ends, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.write_ends)

    def serve(self) -> program.Request | None:
        """Return in each fork what it is to be, and None in the server at its end."""
        life = sys.stdin.fileno()
        while True:
            ready, _, _ = select.select([self.listener, self.ends, life], [], [])
            if self.ends in ready:
                os.read(self.ends, 4096)
                self.tell_ends()
            if life in ready:
                return None
            if self.listener in ready:
                request = self._answer(self.listener.accept()[0])
                if request is not None:
                    return request

    def _answer(self, client: socket.socket) -> program.Request | None:
        asked, files = request_of(client)
        if not self._imports_alike(asked.get("variables", {})):
            _send(client, 0)
            client.close()
        else:
            pid = os.fork()
            if pid == 0:
                self._leave()
                asked["variables"] = self.set_by_imports | asked["variables"]
                return program.Request(client=client, handles=files, **asked)
            self.clients[pid] = client
            _send(client, pid)
        for file in files:
            os.close(file)
        return None

    def _imports_alike(self, variables: dict[str, str]) -> bool:
        """Whether a program with these variables would import what the server has imported."""
        differ = dict(variables.items() ^ self.variables.items())
        reasons = [name for name in differ if name.startswith(READ_AT_IMPORT)]
        if reasons:
            print(f"not forked, for other values of {', '.join(reasons)}", flush=True)
        return not reasons

    def _leave(self) -> None:
        """Let go, in a fork, of what is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pipe in (self.ends, self.write_ends):
            os.close(pipe)
        for other in (self.listener, *self.clients.values()):
            other.close()

    def tell_ends(self) -> None:
        while self.clients:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            client = self.clients.pop(pid)
            _send(client, status)
            client.close()


def request_of(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return what a client asks for and its open files; nothing where it has ended meanwhile."""
    head, messages, _, _ = client.recvmsg(4, socket.CMSG_SPACE(4 * HANDLES))
    files = array.array("i")
    for _, _, data in messages:
        files.frombytes(data)
    try:
        return json.loads(receive(client, int.from_bytes(head, "big"))), list(files)
    except (ConnectionError, ValueError):
        return {}, list(files)


def _send(client: socket.socket, number: int) -> None:
    # Who started a worker of Ray may end it first.
    with contextlib.suppress(OSError):
        client.sendall(number.to_bytes(4, "big"))


def main() -> None:
    """Run the server; in a fork, run its program."""
    request = Server(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]).serve()
    if request is not None:
        program.run(request)


if __name__ == "__main__":
    main()
