"""Programs in the local sandbox: tasks in the forms of HumanEval and MBPP, values, limits and
endings."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rmrl.rewards.kinds.code import local
from rmrl.rewards.kinds.code.request import Program
from rmrl.rewards.kinds.code.sandbox_fusion import SandboxFusionWire
from rmrl.rewards.remote.spec import HTTPSpec
from tests.rewards.kinds.code.sandboxes import asserts, failure, judge, request, run, sandbox, stdio
from tests.rewards.remote.server import Reply, Seen, serving

CYCLIC = '''import math
from typing import List

def poly(xs: list, x: float):
    """Value of a polynomial."""
    return sum(coeff * math.pow(x, i) for i, coeff in enumerate(xs))

def find_zero(xs: List[float]):
    """A zero of the polynomial."""
'''
CHECK_ZERO = """
METADATA = {}
def check(candidate):
    import random
    rng = random.Random(42)
    for _ in range(5):
        coeffs = [-rng.randint(1, 9), 0.0, 0.0, rng.randint(1, 9)]
        solution = candidate(list(coeffs))
        assert math.fabs(poly(coeffs, solution)) < 1e-4
"""
HUMANEVAL = asserts(
    f"{CHECK_ZERO}\n\ncheck(find_zero)\n", prompt=CYCLIC, entry_point="find_zero", setup=""
)
BISECTION = """    low, high = 0.0, 10.0
    while high - low > 1e-10:
        middle = (low + high) / 2
        if poly(xs, middle) < 0:
            low = middle
        else:
            high = middle
    return low
"""


async def test_a_task_like_humaneval_as_a_body_and_as_a_whole_function() -> None:
    assert (await judge(BISECTION, HUMANEVAL)).value == 1.0
    whole = f"def find_zero(xs):\n{BISECTION}"
    assert (await judge(whole, HUMANEVAL)).value == 1.0
    wrong = await judge("    return 0.0", HUMANEVAL)
    assert (wrong.value, failure(wrong)) == (0.0, "test 1 of 1: assertion failed")


async def test_a_helper_of_the_prompt_is_the_testers_own() -> None:
    cheat = "def poly(xs, x): return 0.0\ndef find_zero(xs): return 0.0"
    assert (await judge(cheat, HUMANEVAL)).value == 0.0


async def test_tasks_like_mbpp() -> None:
    code = """
class Pair(object):
    def __init__(self, a, b):
        self.a = a
        self.b = b

def longest(arr, n):
    best = [1] * n
    for i in range(n):
        for j in range(i):
            if arr[i].a > arr[j].b:
                best[i] = max(best[i], best[j] + 1)
    return max(best)

def swap(values):
    values[0], values[-1] = values[-1], values[0]

def parts(n):
    for i in range(n):
        yield (i, {i})

def root(x):
    if x < 0:
        raise ValueError("negative")
    return x ** 0.5
"""
    tests = asserts(
        "assert longest([Pair(5, 24), Pair(15, 25), Pair(27, 40), Pair(50, 60)], 4) == 3",
        "x = [1, 2, 3]\nswap(x)\nassert x == [3, 2, 1]",
        "assert list(parts(2)) == [(0, {0}), (1, {1})]",
        "assert set(dict(a=1)) == {'a'} and math.isclose(root(4), 2)",
        "try:\n    root(-1)\n    assert False\nexcept ValueError as error:\n"
        "    assert str(error) == 'negative'",
        "assert Pair(1, 2).b == 2",
        "p = Pair(1, 2)\np.a = 7\nassert p.a == 7",
        "assert root(2) == 3",
        setup="import math",
    )
    output = await judge(code, tests, score="share")
    assert dict(output.extra) == {
        "tests": 8,
        "passed": 7,
        "first_failure": "test 8 of 8: assertion failed",
    }


async def test_values_come_back_as_they_are() -> None:
    values = [
        "None", "True", "10**5000", "-1.5", "float('inf')", "'é\\ud800\\n'", "b'\\x00'", "1j", "()",
        "(1, [2, (3,)])", "{1: {'a': (2,)}}", "{1, 2}", "frozenset({3})", "range(3)",
        "__import__('fractions').Fraction(1, 3)", "__import__('decimal').Decimal('0.1')",
        "__import__('collections').deque([1])", "__import__('collections').Counter('aab')",
    ]  # fmt: skip
    tests = asserts(*[f"assert same({value}) == {value}" for value in values])
    output = await judge("def same(x): return x", tests, score="share")
    assert output.value == 1.0, failure(output)


async def test_annotations_are_values_as_in_a_file_of_its_own() -> None:
    """No `from __future__ import` of the tester reaches the code or the tests."""
    code = "def f(x: int) -> int: return f.__annotations__['x'] is int"
    setup = "def g(x: int): pass"
    tests = asserts(
        "assert f(1)",
        "assert g.__annotations__['x'] is int",
        "def h(x: int): pass\nassert h.__annotations__['x'] is int",
        setup=setup,
    )
    output = await judge(code, tests, score="share")
    assert output.value == 1.0, failure(output)


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("import itertools\nids = itertools.count()\ndef f(): return next(ids)", "assert f() == 0"),
        ("it = iter([1, 2, 3])\ndef f(): return next(it)", "assert [f(), next(it), f()] == [1, 2, 3]"),
        ("root = []\nroot[:] = [root, root, None]\ndef f(x): return x", "assert f(1) == 1"),
        ("many = [[0]] * 4_000_000\ndef f(x): return x", "assert f(1) == 1"),
        ("calls = 0\nLIMIT = {'a': (1,)}\ndef f():\n  global calls\n  calls += 1",
         "def g(): return LIMIT\nf()\nassert calls == 1\nf()\nassert calls == 2 and g() == {'a': (1,)}"),
        ("def f():\n  n = 0\n  while True:\n    yield n\n    n += 1 + 0 * sum(range(1000))",
         "import itertools\nassert list(itertools.islice(f(), 3)) == [0, 1, 2]"),
        ("class Down:\n  def __init__(s, n): s.n = n\n  def __iter__(s): return s\n"
         "  def __next__(s):\n    if not s.n: raise StopIteration\n    s.n -= 1\n    return s.n\n"
         "def total(values): return sum(values)",
         "assert list(Down(3)) == [2, 1, 0] and total(Down(3)) == 3 and total(iter([1])) == 1"),
    ],
)  # fmt: skip
async def test_values_of_the_code_are_fetched_when_a_test_reads_them(code: str, test: str) -> None:
    output = await judge(code, asserts(test), time_s=2.0)
    assert output.value == 1.0, failure(output)


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("import datetime\ndef f(x): return [datetime.date(2020, 1, x),"
         " datetime.datetime(2020, 1, x, tzinfo=datetime.timezone.utc), datetime.timedelta(x)]",
         "from datetime import *\nassert f(1) == [date(2020, 1, 1),"
         " datetime(2020, 1, 1, tzinfo=timezone.utc), timedelta(1)]"),
        ("def f(x): return x.year", "import datetime\nassert f(datetime.date(2020, 1, 2)) == 2020"),
        ("from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(x): return P(x, 2)",
         "assert f(1).y == 2 and f(1) == (1, 2) and P(3, y=4).x == 3"),
        ("class Bag:\n  def __init__(s, items): s.items = items\n  def __len__(s): return len(s.items)\n"
         "  def __iter__(s): return iter(s.items)\n  def __getitem__(s, i): return s.items[i]",
         "b = Bag([4, 5, 6])\nassert len(b) == 3 and list(b) == [4, 5, 6] and b[1:] == [5, 6]\n"
         "assert 5 in b and 7 not in b and Bag([])"),
        ("import enum\nclass Color(enum.Enum):\n  RED = 1\n  BLUE = 2\ndef f(x): return Color(x)\n"
         "class Node:\n  next = None\ndef link(a, b):\n  a.next = b\n  return a",
         "a = Node()\nb = Node()\nassert link(a, b) is a and a.next == b and a != b\n"
         "assert f(1) == Color.RED and f(2) is not Color.RED and {f(1): 3}[Color.RED] == 3"),
        ("def f(x, seen): seen.append(x)", "a = []\nf(1, seen=a)\nassert a == [1]"),
        ("def f(rows):\n  rows[0].append(1)\n  rows.sort()\n  return rows",
         "a = [5]\nb = [0]\nrows = [a, b]\nassert f(rows) is rows\n"
         "assert (a, b) == ([5, 1], [0]) and rows[0] is b and rows[1] is a"),
        ("def f(q, t): q.rotate(1); t[0].add(2)",
         "from collections import deque\nq = deque([1, 2])\ns = set()\nf(q, t=(s,))\n"
         "assert q == deque([2, 1]) and s == {2}"),
    ],
)  # fmt: skip
async def test_values_that_a_right_program_returns_or_changes(code: str, test: str) -> None:
    output = await judge(code, asserts(test))
    assert output.value == 1.0, failure(output)


async def test_calls_compare_results() -> None:
    tests: dict[str, Any] = {
        "form": "calls",
        "name": "add",
        "cases": [[[1, 2], [3]], [[0.1, 0.2], [0.3]], [["a", "b"], ["ab"]], [[1, 1], [3]]],
    }
    output = await judge(
        "class Solution:\n def add(self, a, b): return a + b", tests, score="share"
    )
    assert output.value == 0.75
    assert failure(output) == "test 4 of 4: wrong result 2"
    nan: dict[str, Any] = {"form": "calls", "name": "f", "cases": [[[1], [float("nan")]]]}
    assert (await judge("def f(x): return float('nan')", nan)).value == 1.0
    assert (await judge("def f(x): return 0.0", nan)).value == 0.0
    output = await judge("def other(): pass", tests)
    assert "no function 'add'" in failure(output)


async def test_a_test_that_cannot_be_run_is_no_verdict() -> None:
    for test in ("assert f(", "class Own: pass\nassert f(Own()) == 1"):
        output = await judge("def f(x): return 1", asserts(test))
        assert output.failure == "user_error", failure(output)
    output = await judge("def f(x): return 1", asserts("assert f(1)", setup="import nothing_here"))
    assert "the setup of the tests" in output.detail


async def test_a_program_reads_its_input_and_its_output_counts() -> None:
    code = "import sys\nn = int(input())\nrest = open('/dev/stdin').read()\nprint(n, len(rest) > 0)"
    assert (await judge(code, stdio(("7\nmore", "7 True  \n\n")))).value == 1.0
    output = await judge("print(1 / 0)", stdio(("", "1")))
    assert (
        failure(output)
        == "test 1 of 1: ended with exit code 1: ZeroDivisionError: division by zero"
    )
    output = await judge("print('1')\nexit(3)", stdio(("", "1")))
    assert failure(output) == "test 1 of 1: ended with exit code 3"


async def test_the_tester_runs_as_a_posted_program() -> None:
    """A fake of the service that really runs what is posted, with the local sandbox."""
    import asyncio

    sandbox()

    def answer(seen: Seen) -> Reply:
        program = Program(source=seen.body["code"], stdin=seen.body["stdin"])
        outcome = asyncio.run(run(program))
        ran = {
            "status": "Finished",
            "return_code": 1 if outcome.problem else 0,
            "stdout": outcome.stdout,
            "stderr": outcome.stderr,
        }
        status = "Failed" if outcome.problem else "Success"
        return Reply({"status": status, "message": "", "run_result": ran})

    codes = [
        "def f(x): return x + 1",
        "def f(x): return 7",
        "import os; os._exit(0)",
        "def f(x):\n import os\n for name in ('mem', 'environ', 'fd/0'):\n"
        "  try: open(f'/proc/{os.getppid()}/{name}', 'rb'); return 2\n"
        "  except OSError: pass\n return 7",
        "open('heapq.py', 'w').write('x = 1 / 0')\ndef f(x): return x + 1",
        # Reads the tester's output and writes verdicts in its place
        "import os\ndef f(x):\n for p in (os.getppid(), 1):\n  for d in range(3):\n"
        "   try: os.write(os.open(f'/proc/{p}/fd/{d}', os.O_WRONLY), b'[[true, \"\"]]\\n')\n"
        "   except OSError: pass\n return 7",
    ]
    with serving(answer) as server:
        wire = SandboxFusionWire(HTTPSpec(url=server.url, wire="sandbox_fusion", max_tries=1))
        tests = asserts("import heapq\nassert heapq.nsmallest(1, [2, f(1)]) == [2] == [f(1)]")
        outputs = await wire.submit("reward", [request(code, tests) for code in codes])
        await wire.aclose()
    assert [(o.value, o.failure) for o in outputs] == [
        (1.0, ""), (0.0, ""), (0.0, ""), (0.0, ""), (1.0, ""), (0.0, "")
    ]  # fmt: skip


async def test_descriptors_above_1023_are_no_obstacle() -> None:
    import contextlib
    import os
    import resource

    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1300:
        pytest.skip("too few open files are allowed")
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        output = await judge("def f(x): return 2", asserts("assert f(1) == 2"))
    assert output.value == 1.0, output.detail


class Jumps:
    """The module `time`, whose clock jumps by a quarter of an hour: the machine paused."""

    def __init__(self) -> None:
        self.readings = 0

    def monotonic(self) -> float:
        self.readings += 1
        return time.monotonic() + 900.0 * (self.readings > 4)


async def test_a_pause_of_the_machine_does_not_end_a_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandbox()
    clock = Jumps()
    monkeypatch.setattr(local, "time", clock)
    output = await judge("import time\ntime.sleep(1)\nprint(1)", stdio(("", "1")))
    assert output.value == 1.0, failure(output)
    assert clock.readings > 8
