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
"""Environment variable: the socket of this one process's server, whatever it runs."""
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
    address = os.environ.get(SERVER)
    if address is None:
        name = "engines" if OF_ENGINES in os.environ else "programs"
        address = os.path.join(os.environ[FOLDER], name)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        ask(connection)
        pid = _number(connection)
    except OSError as error:
        with open(f"{address}.log") as log:
            print(f"the server {address} has ended: {error!r}\n{log.read()}", file=sys.stderr)
        os._exit(NO_SERVER)
    if pid == 0:
        return  # its variables are others than the server's: this process is the program
    with open(place_of_fork(os.path.dirname(address), os.getpid()), "w") as file:
        file.write(str(pid))
    end_as(wait_for(connection, pid))


def place_of_fork(folder: str, pid: int) -> str:
    """Where this process, or another with such a number, says which fork is the program."""
    return os.path.join(folder, f"fork-of-{pid}")


def is_ours(words: list[str]) -> bool:
    """Whether the server has imported what this program needs, from the same folders."""
    _, program = split(words[1:])
    folders = sys.path
    if not program:
        return False
    if program[0] == "-m":
        preloaded = program[1].startswith(MODULES)
        folders = [os.getcwd(), *sys.path]
    elif program[0] == "-c":
        preloaded = program[-1] == LOCAL_CHILD
    else:
        preloaded = program[0].endswith(SCRIPTS)
    if not preloaded:
        return False
    for folder in folders:
        if os.path.isfile(os.path.join(folder, "rmrl", "__init__.py")):
            return os.path.realpath(folder) == os.path.realpath(ROOT)
    return False


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Python's own options, and the program with its arguments."""
    number = 0
    while number < len(words) and words[number] in OPTIONS:
        number += 1
    return words[:number], words[number:]


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


def receive(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ConnectionError("the other side has ended")
        data += more
    return bytes(data)


def _number(connection: socket.socket) -> int:
    return int.from_bytes(receive(connection, 4), "big")


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
