"""What a process does that is to be a fork of another one: it says what it is, then passes signals
on until the fork ends, and ends in the same way."""

from __future__ import annotations

import array
import contextlib
import json
import os
import resource
import signal
import socket
import sys

FOLDER = "RMRL_FORKS"
"""Environment variable: where the sockets of the servers lie."""
SERVER = "RMRL_FORK_SERVER"
"""Environment variable: the server of this one process, whatever it runs."""
OF_ENGINES = "VLLM_ENABLE_V1_MULTIPROCESSING"
"""Environment variable that rmrl sets for vLLM's processes."""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MODULES = ("rmrl.main_", "rmrl.cli", "rmrl.doctor.child")
SCRIPTS = ("/ray/_private/workers/default_worker.py", "/bin/rmrl")
LOCAL_CHILD = "rmrl.cluster.local_child"
OPTIONS = ("-u", "-P", "-B")
"""Options of Python that a fork heeds; a program with others starts anew."""
PASSED_ON = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1),
    *(signal.SIGUSR2, signal.SIGWINCH),
)
NO_SERVER = 70
"""Exit status where the server has ended, whose log is printed."""


def hand_over() -> None:
    """Never returns where this process is a program that is forked."""
    if not (SERVER in os.environ or is_ours(sys.orig_argv)):
        return
    name = os.environ.get(SERVER) or ("engines" if OF_ENGINES in os.environ else "programs")
    address = os.path.join(os.environ[FOLDER], name)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        ask(connection)
        pid = _number(connection)
    except OSError as error:
        with open(f"{address}.log") as log:
            print(f"the fork server {name} has ended: {error!r}\n{log.read()}", file=sys.stderr)
        os._exit(NO_SERVER)
    if pid == 0:
        return  # its variables are others than the server's: this process is the program
    end_as(wait_for(connection, pid))


def is_ours(words: list[str]) -> bool:
    """Whether the server has imported what this program needs, from the same folders."""
    number = program(words)
    if number is None:
        return False
    folders = sys.path
    if words[number] == "-m":
        folders = [os.getcwd(), *sys.path]
    for folder in folders:
        if os.path.isfile(os.path.join(folder, "rmrl", "__init__.py")):
            return os.path.realpath(folder) == os.path.realpath(ROOT)
    return False


def program(words: list[str]) -> int | None:
    for number, word in enumerate(words[1:], 1):
        if word in OPTIONS:
            continue
        if word == "-m":
            preloaded = words[number + 1].startswith(MODULES)
        elif word == "-c":
            preloaded = words[-1] == LOCAL_CHILD
        else:
            preloaded = word.endswith(SCRIPTS)
        return number if preloaded else None
    return None


def ask(connection: socket.socket) -> None:
    files: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder itself was open while it was listed
            os.fstat(int(name))
            if int(name) != connection.fileno():
                files.append(int(name))
    ignored: list[int] = []
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN:
            ignored.append(int(number))
    request = {
        "arguments": sys.orig_argv,
        "variables": dict(os.environ),
        "folder": os.getcwd(),
        "path": sys.path,
        "files": files,
        "ignored": ignored,
    }
    body = json.dumps(request).encode()
    handles = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
    connection.sendmsg([len(body).to_bytes(4, "big")], [handles])
    connection.sendall(body)


def _number(connection: socket.socket) -> int:
    data = b""
    while len(data) < 4:
        more = connection.recv(4 - len(data))
        if not more:
            raise ConnectionError("it closed the connection")
        data += more
    return int.from_bytes(data, "big")


def wait_for(connection: socket.socket, pid: int) -> int:
    """The status with which the fork ended, as `os.waitpid` gives it."""

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in PASSED_ON:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    # The fork has the files: a pipe that this process kept open would never end.
    os.closerange(0, connection.fileno())
    os.closerange(connection.fileno() + 1, 1024)
    return _number(connection)


def end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))
