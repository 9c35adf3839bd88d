"""System calls that a program in the local sandbox does not get: those that make a user namespace,
those that hold memory outside of any process, the keys of the user who runs rmrl, those that have
been ways into the kernel, and sockets of families that a network namespace does not hold back (a
virtual machine's host, Bluetooth). prlimit changes the calling process alone: with limits for the
tester a program could make a row's tests fail.
https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

_LOAD = 0x20
_IF_EQUAL = 0x15
_IF_AT_LEAST = 0x35
_IF_ANY_BIT = 0x45
_RETURN = 0x06
"""Instructions of classic BPF."""

_NUMBER_AT = 0
_ARCHITECTURE_AT = 4
_FIRST_ARGUMENT_AT = 16
"""Places in `struct seccomp_data`."""

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM
_UNKNOWN = 0x00050000 | errno.ENOSYS
_NEW_USER_NAMESPACE = 0x10000000
_OTHER_ABI = 0x40000000
"""First number of x32's system calls, on x86-64."""
_CLONE3 = 435
"""Its flags lie in memory, which a filter cannot read. The C library falls back to clone."""


class _Machine(NamedTuple):
    architecture: int
    clone: int
    socket: int
    prlimit: int
    refused: tuple[int, ...]
    """unshare, memfd_create, memfd_secret, shmget, msgget, semget, io_uring_setup; add_key,
    request_key, keyctl; bpf, perf_event_open, userfaultfd."""


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E, 56, 41, 302, (272, 319, 447, 29, 68, 64, 425, 248, 249, 250, 321, 298, 323)
    ),
    "aarch64": _Machine(
        0xC00000B7, 220, 198, 261, (97, 279, 447, 194, 186, 190, 425, 217, 218, 219, 280, 241, 282)
    ),
}
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: sockets that a program may make."""


def syscall_filter() -> bytes | None:
    """Return the seccomp filter, in instructions of 8 bytes; None on a machine whose numbers are
    not known here."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, machine.architecture),
        (_RETURN, 0, 0, _UNKNOWN),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_AT_LEAST, 0, 1, _OTHER_ABI),
        (_RETURN, 0, 0, _UNKNOWN),
        (_IF_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _UNKNOWN),
    ]
    for number in machine.refused:
        lines.append((_IF_EQUAL, 0, 1, number))
        lines.append((_RETURN, 0, 0, _REFUSE))
    lines.append((_IF_EQUAL, 0, len(_FAMILIES) + 3, machine.socket))
    lines.append((_LOAD, 0, 0, _FIRST_ARGUMENT_AT))
    for place, family in enumerate(_FAMILIES):
        lines.append((_IF_EQUAL, len(_FAMILIES) - place, 0, family))
    lines.append((_RETURN, 0, 0, _REFUSE))
    lines.append((_RETURN, 0, 0, _ALLOW))
    lines += [
        # The process is the first argument; 0 is the calling one.
        (_IF_EQUAL, 0, 4, machine.prlimit),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_IF_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
        (_IF_EQUAL, 0, 3, machine.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_IF_ANY_BIT, 0, 1, _NEW_USER_NAMESPACE),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
