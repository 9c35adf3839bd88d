"""Programs that attack the sandbox or its verdict, run in the real one."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import os
import platform
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rmrl.rewards.kinds.code import local, orphans
from rmrl.rewards.kinds.code.local import run_locally
from rmrl.rewards.kinds.code.request import Program
from tests.patience import PATIENCE_S, expires
from tests.rewards.kinds.code.sandboxes import asserts, failure, judge, sandbox, stdio

TEST = asserts("assert f(1) == 2")


def sandboxes(*, with_ended: bool = True) -> list[str]:
    """Process ids of bubblewrap that are children of this process. `with_ended`: those that run no
    more too; a sandbox whose first process is adopted has two entries for a moment, of which the
    first one has ended."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            text += f" {task.joinpath('children').read_text()}"
    found: list[str] = []
    for pid in set(text.split()):
        with suppress(FileNotFoundError, ProcessLookupError):
            status = Path("/proc", pid, "status").read_text()
            ended = "\nState:\tZ" in status or "\nState:\tX" in status
            if status.startswith("Name:\tbwrap\n") and (with_ended or not ended):
                found.append(pid)
    return found


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "def f(x): import os; os._exit(0)",
        "def f(x): import sys; sys.exit(0)",
        "import atexit, os; atexit.register(os._exit, 0)\ndef f(x): return 1",
        "print('[[true, \"\"]]')\ndef f(x): return 1",
        "import os; os.kill(os.getppid(), 9)",
        "import os\nfor p in range(2, 300):\n  try: os.kill(p, 9)\n  except OSError: pass",
        "import os; os.kill(-1, 9)",
        "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)\ndef f(x): return 1",
    ],
)
async def test_an_early_end_or_a_printed_verdict_is_no_success(code: str) -> None:
    output = await judge(code, TEST, time_s=1.0)
    assert (output.value, output.failure) == (0.0, "")
    assert failure(output).startswith("test 1 of 1: ")


@pytest.mark.parametrize(
    "code",
    [
        # Equality, truth and order of its own
        "class Any:\n def __eq__(s, o): return True\n def __bool__(s): return True\n"
        " def __sub__(s, o): return 0\n def __lt__(s, o): return True\n"
        "def f(x): return Any()",
        "class Sly(int):\n def __eq__(s, o): return True\n __hash__ = int.__hash__\n"
        "def f(x): return Sly(7)",
        # Membership and items of its own
        "class Any:\n def __contains__(s, o): return True\n def __len__(s): return 0\n"
        " def __iter__(s): return iter([Any()])\n def __eq__(s, o): return True\n"
        "def f(x): return Any()",
        "import collections\ndef f(x):\n T = type('T', (tuple,), {'_fields': ('__eq__',)})\n"
        " return T([lambda *a: True])",
        # Names that tests use
        "abs = lambda x: 0\nlen = lambda x: 2\nAssertionError = SystemExit\ndef f(x): return 7",
        "class math:\n isclose = lambda *a: True\ndef f(x): return 7",
        "import builtins\nbuiltins.AssertionError = SystemExit\nbuiltins.abs = lambda x: 0\n"
        "def f(x): return 7",
        # Frames, arguments, descriptors and memory of the tester
        "import sys, gc\ndef f(x):\n"
        " for o in gc.get_objects():\n  if isinstance(o, dict) and 'secret' in o: return 2\n"
        " frame = sys._getframe()\n"
        " while frame:\n  if 'expected' in frame.f_locals: return 2\n  frame = frame.f_back\n"
        " return 7",
        "def f(x):\n import os\n p = os.getppid()\n"
        " for name in ('mem', 'environ', 'maps', 'fd/0', 'fd/1'):\n"
        "  try:\n   open(f'/proc/{p}/{name}', 'rb').read(1); return 2\n"
        "  except OSError: pass\n return 7",
        "def f(x):\n import os\n"
        " for name in os.listdir('/proc/1/fd') if os.access('/proc/1/fd', 5) else []:\n"
        "  try:\n   os.write(os.open(f'/proc/1/fd/{name}', os.O_WRONLY), b'[[true]]\\n')\n"
        "  except OSError: pass\n return 7",
        "def f(x):\n import ctypes, os\n c = ctypes.CDLL(None)\n"
        " return 2 if c.ptrace(16, os.getppid(), 0, 0) == 0 else 7",
        "import sys\ndef f(x): return 2 if 'assert' in repr(sys.argv) + sys.stdin.read() else 7",
        "import glob\ndef f(x):\n"
        " return 2 if any(b'== 2' in open(n, 'rb').read() for n in glob.glob('/tmp/**')) else 7",
        # Answers of its own on the channel, and a name that would replace all builtins
        "import os, json\n"
        "line = json.dumps({'names': {'__builtins__': ['d', [['abs', 0]]], 'f': ['o', 0]}})\n"
        "for d in range(3, 20):\n"
        "  try: os.write(d, (line + '\\n').encode())\n  except OSError: pass\n"
        "def f(x): return 7",
    ],
)
async def test_a_wrong_program_does_not_pass_by_attacking_the_tests(code: str) -> None:
    tests = asserts("import math\nassert abs(f(1) - 2) < 1e-9", "assert math.isclose(f(1), 2)")
    work = [judge(code, each, time_s=2.0, score="share") for each in (TEST, tests)]
    for output in await asyncio.gather(*work):
        assert (output.value, output.failure) == (0.0, ""), failure(output)


@pytest.mark.parametrize("place", ["/proc/self/fd/1", "/proc/1/fd/1"])
async def test_a_program_cannot_pass_for_one_that_never_ran(place: str) -> None:
    code = (
        "import os\n"
        f"try:\n  d = os.open('{place}', os.O_RDONLY | os.O_NONBLOCK)\n"
        "  for _ in range(1000): os.read(d, 65536)\nexcept OSError: pass\n"
        "for d in range(3, 64):\n"
        "  try: os.read(d, 1) if os.get_blocking(d) is False else os.close(d)\n"
        "  except OSError: pass\n"
        "os._exit(1)"
    )
    output = await judge(code, stdio(("", "1")))
    assert (output.value, output.failure) == (0.0, "")


async def test_a_fork_bomb_stays_in_the_sandbox() -> None:
    code = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    output = await judge(code, TEST, time_s=1.0)
    assert output.value == 0.0
    assert sandboxes() == []
    count = "import os\nn = 0\nwhile n < 100:\n  try:\n    if not os.fork(): import time; time.sleep(9)\n"
    count += "  except OSError: break\n  n += 1\nprint(n < 16)"
    assert (await judge(count, stdio(("", "True")), time_s=5.0)).value == 1.0


async def test_memory_is_limited_for_a_process_and_for_all_together() -> None:
    one = "x = bytearray(10**9)\nprint(1)"
    output = await judge(one, stdio(("", "1")), memory_mb=256)
    assert "MemoryError" in failure(output)
    family = (
        "import os, time\nfor _ in range(4): os.fork()\n"
        "x = bytearray(100 * 2**20)\nx[::4096] = b'x' * len(x[::4096])\ntime.sleep(3)\nprint(1)"
    )
    output = await judge(family, stdio(("", "1")), memory_mb=256, processes=32)
    assert output.value == 0.0
    assert "used more than 256 MB" in failure(output)


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(10**6)"])
async def test_an_endless_program_is_ended(code: str) -> None:
    work = [judge(code, tests, time_s=1.0) for tests in (TEST, stdio(("", "1")))]
    for output in await asyncio.gather(*work):
        assert (output.value, output.failure) == (0.0, "")
        assert "ran out of time" in failure(output)


async def test_endless_output_is_cut_off() -> None:
    code = "import sys\nwhile True: sys.{}.write('x' * 65536)"
    streams = ("stdout", "stderr")
    work = [judge(code.format(stream), stdio(("", "1")), time_s=5.0) for stream in streams]
    for output in await asyncio.gather(*work):
        assert output.value == 0.0
        assert "wrote more than 4 MiB" in failure(output)


async def test_what_functions_print_is_not_stored() -> None:
    code = "def f(x):\n for _ in range(2000): print('x' * 10000)\n return x + 1"
    assert (await judge(code, TEST)).value == 1.0


async def test_there_is_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            "import socket\n"
            f"for host in ('127.0.0.1', '8.8.8.8'):\n"
            f"  try: socket.create_connection((host, {port}), timeout=1); print('open')\n"
            "  except OSError: print('closed')"
        )
        output = await judge(code, stdio(("", "closed\nclosed")))
    assert output.value == 1.0, failure(output)


async def test_files_and_environment_of_the_user_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("mine")
    monkeypatch.setenv("MY_API_KEY", "sk-123")
    places = [str(secret), str(Path.home()), str(Path(__file__)), "/etc/passwd", "/home", "/var"]
    code = (
        "import os\n"
        f"print([p for p in {places} if os.path.isfile(p) or os.path.isdir(p) and os.access(p, 4)"
        " and os.listdir(p) not in ([], ['.pyenv'])])\n"
        "print('sk-123' in str(os.environ), os.environ.get('HOME'))\n"
        "print(sum(p.isdigit() for p in os.listdir('/proc')) < 6)"
    )
    output = await judge(code, stdio(("", "[]\nFalse /tmp\nTrue")))
    assert output.value == 1.0, failure(output)


async def test_nothing_can_be_written_but_a_small_tmp() -> None:
    prefix = sandbox().prefixes or ("/usr",)
    places = ["/", "/usr", "/dev", "/dev/shm", "/proc/sys/kernel", "/root", *prefix]
    code = (
        "import os\n"
        f"for place in {places}:\n"
        "  try: open(place + '/mine', 'w').write('x'); print('wrote', place)\n"
        "  except OSError: pass\n"
        "try: open('/proc/sys/kernel/core_pattern', 'w'); print('proc')\n"
        "except OSError: pass\n"
        "written = 0\n"
        "try:\n"
        "  for i in range(40):\n"
        "    with open(f'/tmp/{i}', 'wb') as f: written += f.write(bytes(8 * 2**20))\n"
        "except OSError: pass\n"
        "print(written <= 64 * 2**20, os.getuid() != 0)"
    )
    output = await judge(code, stdio(("", "True True")))
    assert output.value == 1.0, failure(output)


async def test_a_background_child_does_not_outlive_its_program() -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n  os.setsid()\n"
        "  if os.fork() == 0: os.execvp('sleep', ['sleep', '98765'])\n  os._exit(0)\n"
        "print(1)"
    )
    output = await judge(code, stdio(("", "1")))
    # Where its streams were waited for, it would have run out of time.
    assert output.value == 1.0, failure(output)
    assert sandboxes() == []
    left = subprocess.run(["ps", "-eo", "uid,args"], capture_output=True, text=True, check=True)
    assert "sleep 98765" not in left.stdout


async def test_cancelling_ends_the_programs_at_once() -> None:
    sandbox()
    work = [
        asyncio.create_task(judge("import time; time.sleep(10**6)", TEST, time_s=10**5))
        for _ in range(4)
    ]
    while len(sandboxes()) < 2:
        await asyncio.sleep(0.02)
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    end = time.monotonic() + PATIENCE_S
    while sandboxes() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    assert sandboxes() == []


async def test_no_more_programs_at_once_than_workers() -> None:
    most = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(expires(0.01)):
            most = max(most, len(sandboxes(with_ended=False)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    outputs = await asyncio.gather(*[judge("def f(x): return 2", TEST) for _ in range(6)])
    done.set()
    watcher.join()
    assert [output.value for output in outputs] == [1.0] * 6
    assert 1 <= most <= 2


DETACHED = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
names = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp"
names += " ss fs_base gs_base ds es fs gs"
class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in names.split()]
WALL = 0x40000000
libc.ptrace(16, 1, 0, 0)
os.waitpid(1, WALL)
registers = Registers()
place = ctypes.addressof(registers)
libc.ptrace(12, 1, 0, place)
saved = Registers.from_buffer_copy(bytes(registers))
registers.rip -= 2
registers.rax = 157
registers.orig_rax = 2**64 - 1
registers.rdi = 1
registers.rsi = 0
libc.ptrace(13, 1, 0, place)
libc.ptrace(9, 1, 0, 0)
os.waitpid(1, WALL)
saved.rip -= 2
saved.rax = saved.orig_rax
saved.orig_rax = 2**64 - 1
libc.ptrace(13, 1, 0, ctypes.addressof(saved))
libc.ptrace(17, 1, 0, 0)
print("detached", flush=True)
time.sleep(60)
"""
"""Calls prctl(PR_SET_PDEATHSIG, 0) in the sandbox's first process, which has the program's user id
where rmrl is not root."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="writes registers of x86-64")
async def test_a_program_that_detaches_its_sandbox_is_ended_with_it() -> None:
    made = dataclasses.replace(sandbox(), as_root=False)
    outcome = await run_locally(Program(source=DETACHED, time_s=1.0), made, workers=2)
    assert (outcome.stdout, outcome.problem) == ("detached\n", "ran out of time")
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "main.py" not in left.stdout


async def test_memory_outside_of_processes_is_counted_or_refused() -> None:
    shared = (
        "import mmap, os, time\n"
        "for _ in range(3): os.fork()\n"
        "m = mmap.mmap(-1, 100 * 2**20)\n"
        "for place in range(0, len(m), 4096): m[place] = 1\n"
        "time.sleep(3)\nprint(1)"
    )
    output = await judge(shared, stdio(("", "1")), memory_mb=256)
    assert "used more than 256 MB" in failure(output)
    calls = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None)\n"
        "try: os.memfd_create('x'); print('memfd')\nexcept OSError: pass\n"
        "print(libc.shmget(0, 4096, 0o1600), libc.unshare(0x10000000),"
        " libc.syscall(56, 0x10000011, 0, 0, 0, 0))"
    )
    for as_root in {sandbox().as_root, False}:
        made = dataclasses.replace(sandbox(), as_root=as_root)
        outcome = await run_locally(Program(source=calls), made, workers=2)
        assert outcome.stdout == "-1 -1 -1\n"


async def test_keys_of_the_user_and_sockets_outside_of_the_namespace_are_refused() -> None:
    code = (
        "import ctypes, socket\n"
        "syscall = ctypes.CDLL(None).syscall\n"
        "print(*(syscall(number, 0, -3, 1, 0, 0) for number in (248, 249, 250, 321, 298, 323)))\n"
        "made = []\n"
        "for family in range(48):\n"
        "  for kind in (1, 2, 3, 5):\n"
        "    try: socket.socket(family, kind); made.append(family)\n"
        "    except OSError: pass\n"
        "print(sorted(set(made)))"
    )
    if platform.machine() != "x86_64":
        code = code.replace("248, 249, 250, 321, 298, 323", "217, 218, 219, 280, 241, 282")
    for as_root in {sandbox().as_root, False}:
        made = dataclasses.replace(sandbox(), as_root=as_root)
        outcome = await run_locally(Program(source=code), made, workers=2)
        assert outcome.stdout == "-1 -1 -1 -1 -1 -1\n[1, 2, 10, 16]\n"


@pytest.mark.parametrize("filtered", [True, False])
async def test_a_program_cannot_make_its_rows_tests_unfit(
    monkeypatch: pytest.MonkeyPatch, filtered: bool
) -> None:
    """It took the tester's files, so that the setup's import failed: a status in the place of 0.
    Without the filter of system calls it still takes them, after the setup has run."""
    if not filtered:
        monkeypatch.setattr(local, "syscall_filter", lambda: None)
    code = (
        "import os, resource\n"
        "try: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0))\n"
        "except OSError: pass\n"
        "def f(x): return %s"
    )
    tests = asserts("assert f(1) == 2", setup="import colorsys")
    wrong = await judge(code % "7", tests)
    assert (wrong.value, wrong.failure) == (0.0, "")
    assert "assertion failed" in failure(wrong)
    assert (await judge(code % "x + 1", tests)).value == 1.0


async def test_limits_of_other_processes_are_refused() -> None:
    code = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))\n"
        "print(resource.prlimit(0, resource.RLIMIT_NOFILE))\n"
        "for process in (os.getppid(), 1):\n"
        "  try: print(resource.prlimit(process, resource.RLIMIT_NOFILE))\n"
        "  except PermissionError: print('refused')"
    )
    outcome = await run_locally(Program(source=code), sandbox(), workers=2)
    assert outcome.stdout == "(50, 50)\nrefused\nrefused\n"


async def test_an_array_interface_of_the_program_is_not_followed() -> None:
    code = (
        "class Memory:\n"
        " asked = 0\n"
        " @property\n"
        " def __array_interface__(self):\n"
        "  Memory.asked += 1\n"
        "  return {'shape': (2,), 'typestr': '<i8', 'data': (4096, False), 'version': 3}\n"
        "def f(x): return Memory()\n"
        "def asked(): return Memory.asked"
    )
    test = (
        "far = f(1)\n"
        "assert not hasattr(far, '__array_interface__')\n"
        "assert not hasattr(far, '__dlpack__')\n"
        "assert asked() == 0"
    )
    output = await judge(code, asserts(test))
    assert output.value == 1.0, failure(output)


async def test_a_stop_iteration_of_the_program_ends_no_loop_of_the_test() -> None:
    code = "def f(x): raise StopIteration\ndef steps_of(): yield 1\n"
    through_map = "assert all(map(lambda x: f(x) == 7, [1, 2]))"
    output = await judge(code, asserts(through_map))
    assert (output.value, output.failure) == (0.0, "")
    assert "RuntimeError: StopIteration" in failure(output)
    good = "steps = steps_of()\nassert next(steps) == 1\nassert next(steps, None) is None"
    assert (await judge(code, asserts(good))).value == 1.0


async def test_a_program_leaves_no_entry_in_the_table_of_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where process 1 is no init: a program that ends, and one that is ended."""
    made = sandbox()
    monkeypatch.setattr(orphans, "_STATUS", tmp_path / "none")
    assert orphans.adopt()
    try:
        for source in ("print(1)", "import time; time.sleep(10**6)"):
            await run_locally(Program(source=source, time_s=0.1), made, workers=2)
            assert sandboxes() == []
    finally:
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
