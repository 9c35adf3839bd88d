"""The local sandbox: bubblewrap's namespaces around a program, and whether this machine has them.

Of the machine the program sees /usr read-only, the Python installation, an empty /tmp of a limited
size, and its own processes. It has no network, no environment and no capability. Where rmrl runs as
root, every program gets a user id of its own that owns nothing. Else it runs in a user namespace.

https://github.com/containers/bubblewrap
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_UIDS = range(200_000, 260_000)
"""User ids of programs where rmrl is root."""
_UIDS_OF_CONTAINER = range(30_000, 60_000)
"""User ids in a container that maps 65,536 of them."""
_UID_TRIES = 1000
_TMP_BYTES = 64 * 2**20
_PROBE_TIMEOUT_S = 30.0
_INSTALL = (
    "install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install"
    " bubblewrap), or use where: sandbox_fusion"
)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A sandbox that has been tried on this machine."""

    executable: str
    python: str
    prefixes: tuple[str, ...]
    """Folders of the Python installation besides /usr."""
    as_root: bool

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that runs Python with `arguments` in the sandbox."""
        line = [self.executable, "--die-with-parent", "--new-session"]
        for kind in ("ipc", "pid", "net", "uts", "cgroup-try"):
            line.append(f"--unshare-{kind}")
        line += ["--hostname", "sandbox", "--cap-drop", "ALL"]
        if self.as_root:
            # Given up by the first line of the program, with the user id.
            line += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            line += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
        line += ["--ro-bind", "/usr", "/usr"]
        for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
            folder = Path(name)
            if folder.is_symlink():
                line += ["--symlink", str(folder.readlink()), name]
            elif folder.is_dir():
                line += ["--ro-bind", name, name]
        for name in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"):
            line += ["--ro-bind-try", name, name]
        for prefix in self.prefixes:
            for parent in reversed(Path(prefix).parents[:-1]):
                # Folders that bubblewrap makes by itself can be entered by root alone.
                line += ["--perms", "0755", "--dir", str(parent)]
            line += ["--ro-bind", prefix, prefix]
        line += ["--proc", "/proc", "--dev", "/dev"]
        line += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/tmp", "--chdir", "/tmp"]
        line += ["--remount-ro", "/dev", "--remount-ro", "/"]
        return [*line, "--", self.python, "-I", "-B", *arguments]

    @contextlib.contextmanager
    def user(self) -> Iterator[int | None]:
        """The user id of one program, which no other program on this machine has meanwhile: limits
        of processes count per user id. None where the user namespace gives it. Raises OSError where
        none is free."""
        if not self.as_root:
            yield None
            return
        uids = _uids()
        # An abstract socket of that name is free again when it is closed or its process ends.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
            for _ in range(_UID_TRIES):
                uid = secrets.choice(uids)
                with contextlib.suppress(OSError):
                    claim.bind(f"\0rmrl-sandbox-uid-{uid}")
                    break
            else:
                raise OSError(f"no user id from {uids[0]} to {uids[-1]} is free")
            yield uid


@cache
def _uids() -> range:
    """User ids that this machine, or the container, knows."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            first, _, count = map(int, line.split())
            if first <= _UIDS[0] and _UIDS[-1] < first + count:
                return _UIDS
    return _UIDS_OF_CONTAINER


def environment() -> dict[str, str]:
    """Return a program's whole environment."""
    return {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}


@cache
def find_bubblewrap(python: str) -> Bubblewrap | str:
    """Return the sandbox, or a sentence on what is missing. It is looked for once. `python`: the
    interpreter of the programs, "" for the one that rmrl's environment was made from."""
    python = python or str(Path(sys.executable).resolve())
    executable = shutil.which("bwrap")
    if executable is None:
        return (
            f"programs run in a sandbox only, and bubblewrap (bwrap) is not installed: {_INSTALL}"
        )
    try:
        prefixes = _prefixes(python)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"{python} is no Python interpreter that can be run ({error}); give another one"
    home = Path.home()
    for prefix in prefixes:
        if home.is_relative_to(prefix):
            return (
                f"the Python installation {prefix} holds the home folder, which a program must not"
                " see; give python: <an interpreter in a folder of its own, e.g. /usr/bin/python3>"
            )
    sandbox = Bubblewrap(executable, python, prefixes, os.geteuid() == 0)
    try:
        done = subprocess.run(
            sandbox.command("-c", "print(6 * 7)"),
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap cannot be run ({error}): {_INSTALL}"
    if done.returncode != 0 or done.stdout.strip() != "42":
        reason = " ".join(done.stderr.split())[-300:] or f"exit code {done.returncode}"
        return (
            f"bubblewrap cannot make a sandbox on this machine ({reason}); it needs namespaces:"
            " allow user namespaces (sysctl user.max_user_namespaces,"
            " kernel.apparmor_restrict_unprivileged_userns=0), start the container with them, or"
            " use where: sandbox_fusion"
        )
    return sandbox


def _prefixes(python: str) -> tuple[str, ...]:
    """The folders in which an interpreter, its library and its packages lie, without those below
    /usr."""
    question = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))"
    done = subprocess.run(
        [python, "-I", "-c", question],
        capture_output=True,
        text=True,
        timeout=_PROBE_TIMEOUT_S,
        check=True,
    )
    executable, prefix, base = json.loads(done.stdout)
    folders: list[str] = []
    resolved = str(Path(executable).resolve().parent.parent)
    for folder in (prefix, base, resolved):
        inside = any(Path(folder).is_relative_to(outer) for outer in ("/usr", *folders))
        if not inside:
            folders.append(folder)
    return tuple(folders)
