"""The roles of the program, and the limits of its processes."""

from __future__ import annotations

import ctypes
import hmac
import json
import os
import pathlib
import resource
import struct
import sys
from typing import Any

from rmrl.rewards.kinds.code.inside.candidate import candidate
from rmrl.rewards.kinds.code.inside.tester import tests

_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2


def confine(job: Any) -> None:
    """Give up the user id, set the limits and the filter of system calls, for this process and all
    that it starts."""
    uid = job.get("uid")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for name, value in job.get("limits", {}).items():
        resource.setrlimit(getattr(resource, name), (value, value))
    instructions = ctypes.create_string_buffer(bytes.fromhex(job.get("filter", "")))
    count = len(instructions) // 8
    if count:
        # struct sock_fprog: their number and their address.
        program = ctypes.create_string_buffer(
            struct.pack("HP", count, ctypes.addressof(instructions))
        )
        if ctypes.CDLL(None).prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
            sys.exit("the kernel takes no filter of system calls")


def main() -> None:
    """Run the role that the command line names."""
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    role = sys.argv[1] if len(sys.argv) > 1 else "tests"
    if role == "candidate":
        candidate(int(sys.argv[2]), int(sys.argv[3]))
    elif role == "program":
        program(int(sys.argv[2]), int(sys.argv[3]))
    else:
        job = json.loads(sys.stdin.buffer.read())
        if not sys.flags.isolated:
            # The folder of this program, in which the candidate may write modules.
            del sys.path[0]
        confine(job)
        # Other processes of this user cannot read this one's memory or descriptors.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        sys.stdout.write(job["ready"] + "\n")
        sys.stdout.flush()
        verdicts = json.dumps(tests(job))
        code = hmac.new(job["secret"].encode(), verdicts.encode(), "sha256").hexdigest()
        sys.stdout.write("\n" + code + " " + verdicts + "\n")
        sys.stdout.flush()
        os._exit(0)


def program(job_fd: int, ready: int) -> None:
    """Write the program to a file and become it. `ready`: a socket that tells of it."""
    with os.fdopen(job_fd, "rb") as file:
        job = json.loads(file.read())
    confine(job)
    if not os.access(sys.executable, os.X_OK):
        sys.exit("no access to " + sys.executable)
    main_file = pathlib.Path("/tmp/main.py")
    main_file.write_text(job["source"], encoding="utf-8", errors="surrogatepass")
    os.write(ready, b"1")
    os.close(ready)
    os.execv(sys.executable, [sys.executable, "-B", str(main_file)])


if __name__ == "__main__":
    main()
