"""What decides of a verdict in the tester: tests that assert nothing, errors of the code, names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rewards.kinds.code.sandboxes import asserts, failure, judge

RIGHT = "def f(x): return x + 1"
WRONG = "def f(x): return 7"


@pytest.mark.parametrize(
    "test",
    [
        "def test_f():\n    assert f(1) == 2",
        "import unittest\nclass Cases(unittest.TestCase):\n"
        "    def test_it(self): self.assertEqual(f(1), 2)",
        "import unittest\nclass Cases(unittest.TestCase):\n"
        "    def setUp(self): self.result = f(1)\n"
        "    def test_it(self): self.assertEqual(self.result, 2)\n"
        "if __name__ == '__main__': unittest.main()",
    ],
)
async def test_functions_and_classes_of_tests_are_run(test: str) -> None:
    assert (await judge(RIGHT, asserts(test))).value == 1.0
    output = await judge(WRONG, asserts(test))
    assert (output.value, output.failure) == (0.0, "")
    assert "assertion failed" in failure(output)


@pytest.mark.parametrize(
    "test",
    ["def check(candidate): assert candidate(1) == 2", "x = 1", "def test_f(pair): assert f(1)"],
)
async def test_a_test_without_an_assertion_is_no_verdict(test: str) -> None:
    output = await judge(RIGHT, asserts(test))
    assert output.failure == "user_error"
    assert "runs no assertion" in output.detail


CASES = "import unittest\nclass Cases(unittest.TestCase):\n"
PATCHES = {
    "a decorator": f"from unittest.mock import patch\n{CASES}    @patch('os.listdir')\n"
    "    def test_it(self, listed): self.assertEqual(f(1), 2)",
    "a method": f"from unittest import mock\n{CASES}    def test_it(self):\n"
    "        with mock.patch.object(str, 'upper'): self.assertEqual(f(1), 2)",
    "a whole path": "import unittest.mock\n"
    "with unittest.mock.patch('builtins.print'): assert f(1) == 2",
    "an attribute": "import io, sys\nsys.stdin = io.StringIO('1')\nassert f(1) == 2",
    "an entry": "import os\nos.environ['KEY'] = 'x'\nassert f(1) == 2",
}
NO_PATCHES = {
    "an import that nothing uses": "from unittest.mock import patch\nassert f(1) == 2",
    "an own name": "def patch(x): return x\nassert patch(f(1)) == 2",
    "an attribute of a value": "import types\nown = types.SimpleNamespace()\n"
    "own.stdin = 1\nassert f(own.stdin) == 2",
    "an attribute that is read": "import sys\nlimit = sys.maxsize\nassert f(1) == 2 < limit",
}


@pytest.mark.parametrize("name", [*PATCHES, *NO_PATCHES])
async def test_a_test_that_patches_is_a_status_and_no_0(name: str) -> None:
    """As 178 of BigCodeBench's 1,140 rows do: no patch reaches the process of the code."""
    if name in NO_PATCHES:
        assert (await judge(RIGHT, asserts(NO_PATCHES[name]))).value == 1.0
        return
    for program in (RIGHT, WRONG):
        output = await judge(program, asserts(PATCHES[name]))
        assert output.failure == "user_error"
        assert "the test replaces" in output.detail
        assert "in a process of its own" in output.detail


async def test_a_setup_is_found_unfit_before_the_code_starts() -> None:
    """The setup reads a name of the code where it has to, and runs once where it has not."""
    late = asserts("assert twice(1) == 4", setup="def twice(x): return f(f(x)) + 1")
    assert (await judge(RIGHT, late)).value == 1.0
    needs_code = asserts("assert first == 2", setup="first = f(1)")
    assert (await judge(RIGHT, needs_code)).value == 1.0
    assert (await judge(WRONG, needs_code)).value == 0.0
    once = asserts("assert f(1) == 2", setup="import os\nos.mkdir('/tmp/of the setup')")
    assert (await judge(RIGHT, once)).value == 1.0
    for setup in ("1 / 0", "raise SystemExit", "import nothing_here", "x = ("):
        output = await judge("import os; os._exit(0)", asserts("assert f(1)", setup=setup))
        assert output.failure == "user_error", setup


@pytest.mark.parametrize("end", ["import os; os._exit(0)", "import time; time.sleep(100)"])
@pytest.mark.parametrize("kind", ["except Exception", "except"])
async def test_a_test_that_catches_errors_does_not_catch_the_codes_end(end: str, kind: str) -> None:
    code = f"def f(x):\n if x < 0:\n  {end}\n return x"
    test = (
        f"assert f(1) == 1\ntry:\n f(-1)\n raised = False\n{kind}:\n raised = True\nassert raised"
    )
    output = await judge(code, asserts(test), time_s=1.0)
    assert (output.value, output.failure) == (0.0, "")


async def test_an_error_of_the_code_keeps_its_builtin_class_and_its_arguments() -> None:
    code = (
        "import json\n"
        "class Own(ValueError): pass\n"
        "def own(): raise Own('bad', 3)\n"
        "def decode(): return b'\\xff'.decode()\n"
        "def load(): json.loads('{')\n"
        "def key(): raise KeyError('k')\n"
        "def missing(): open('/nowhere')\n"
    )
    calls = {
        "own()": "ValueError as e: assert e.args == ('bad', 3)",
        "decode()": "UnicodeDecodeError as e: assert e.start == 0",
        "load()": "ValueError as e: assert 'property name' in str(e)",
        "key()": "KeyError as e: assert e.args[0] == 'k'",
        "missing()": "FileNotFoundError as e: assert (e.errno, e.filename) == (2, '/nowhere')",
    }
    tests: list[str] = []
    for call, kind in calls.items():
        tests.append(f"try:\n    {call}\n    raise AssertionError\nexcept {kind}")
    output = await judge(code, asserts(*tests), score="share")
    assert output.value == 1.0, failure(output)


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("def sum(a, b): return a + b", asserts("assert sum(10, 15) == 25")),
        (
            "def bisect(a, b): return a + b",
            asserts("def check(c): assert c(1, 2) == 3\ncheck(bisect)", entry_point="bisect"),
        ),
        (
            "def sum(a, b): return a + b",
            {"form": "calls", "name": "sum", "cases": [[[1, 2], [3]]]},
        ),
    ],
)
async def test_the_function_under_test_may_be_named_like_one_of_python(
    code: str, tests: dict[str, Any]
) -> None:
    output = await judge(code, tests)
    assert output.value == 1.0, failure(output)
    assert (await judge(code.replace("+", "-"), tests)).value == 0.0


async def test_a_setup_uses_classes_of_the_code() -> None:
    code = "class Node:\n def __init__(s, x): s.x = x; s.left = None\ndef h(n): return n.left.x"
    setup = "root = Node(1)\nroot.left = Node(2)"
    output = await judge(code, asserts("assert h(root) == 2", setup=setup))
    assert output.value == 1.0, failure(output)
    for wrong in ("def h(n): return 2", "Node = 5\ndef h(n): return 2"):
        other = await judge(wrong, asserts("assert h(root) == 2", setup=setup))
        assert (other.value, other.failure) == (0.0, ""), other.detail
    broken = await judge(code, asserts("assert h(root) == 2", setup="1 / 0"))
    assert broken.failure == "user_error"


async def test_a_whole_program_behind_a_prompt_may_import_from_the_future() -> None:
    prompt = "from typing import List\n\ndef f(x):\n    '''Add one.'''\n"
    tests = asserts("def check(c): assert c(1) == 2\ncheck(f)", prompt=prompt, entry_point="f")
    whole = "from __future__ import annotations\ndef f(x: Unknown): return x + 1"
    output = await judge(whole, tests)
    assert output.value == 1.0, failure(output)
    assert (await judge("    return x + 1", tests)).value == 1.0


async def test_many_failures_leave_the_share_of_the_others() -> None:
    case = [[1], ["z"]]
    tests = {"form": "calls", "name": "f", "cases": [case] * 14000 + [[[1], ["y" * 400]]]}
    output = await judge("def f(x): return 'y' * 400", tests, score="share", time_s=20.0)
    assert output.value == 1 / 14001, failure(output)
    assert failure(output).startswith("test 1 of 14001: wrong result y")
