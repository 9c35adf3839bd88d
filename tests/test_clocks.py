"""No test fails because a machine stood still for some seconds, or because others use it.

Four rules, held for every file below tests/:

1. *Success never has a patience under 30 s.* A number under 30 as `timeout=`, `timeout_s=`,
   `patience_s=`, `deadline_s=` and the like (as an argument, a default, a name or a key), in
   `asyncio.timeout(n)`, `wait_for(..., n)`, `.join(n)`, `.wait(n)`, `.poll(n)` or
   `time.monotonic() + n`, and within a text such as "reward.timeout_s=3". Write
   `tests.patience.PATIENCE_S` where what is waited for comes, and `expires(0.3)` where it never
   does. Zero and less are no patience: they look once, or are refused.
2. *No assert bounds a wall clock under 30 s.* `assert elapsed < 3` and its like, where `elapsed`
   comes from `time.time`, `time.monotonic`, `time.perf_counter` or `loop.time`; nor does one
   compare two such spans. Say it by order, by a count of what was under way at once, by operations
   counted, or on virtual time. A lower bound stays: a pause makes a span longer, never shorter.
3. *No assert bounds the processor's time under 10 s, or compares two such times.* A neighbour on
   the same core makes `time.process_time` grow several times. A text that takes a linear reader
   under a second and a quadratic one minutes leaves room for both. How fast something is stands in
   benchmarks/, not here.
4. *A condition that came true is not asked again.* A helper that waits for a condition which it is
   given returns what it saw: the condition may be true for a moment only.

A test marked `virtual_time` (or a module with `pytestmark`) is free of all: its clock does not
stand still.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
SHORT_S = 30.0
SHORT_CPU_S = 10.0

_PATIENCE = re.compile(r"(^|_)(patience|timeout|deadline)(_s)?$|(^|_)(within|limit)_s$", re.I)
_IN_TEXT = re.compile(r"\b(?:\w+_)?(?:patience|timeout|deadline)_s\W{0,2}[=:]\s*(\d+\.?\d*)")
_SPAN = re.compile(r"(^|_)(elapsed|took|duration)(_s)?$")
_CLOCKS = ("time", "monotonic", "perf_counter")
_PROCESSOR_CLOCKS = ("process_time", "thread_time")
_FOR_ONE_NUMBER = ("timeout", "timeout_at", "join", "wait", "poll")
_Assignment = ast.Assign | ast.AnnAssign | ast.NamedExpr
_BOUNDS = {"span": ("a wall clock", SHORT_S), "processor": ("the processor's time", SHORT_CPU_S)}
_SAME_SORT = ("abs", "float", "max", "min", "round", "sum")


class _Names:
    """The numbers of names that are given one, and what is known of those that hold times:
    "moment", "span" or "processor"."""

    def __init__(self, tree: ast.AST) -> None:
        self.numbers: dict[str, float | None] = {}
        self.sorts: dict[str, str] = {}
        assignments = [node for node in ast.walk(tree) if isinstance(node, _Assignment)]
        # Twice, since a name may be used above the line that says what it holds.
        for node in assignments * 2:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._name(target, node.value)
            elif node.value is not None:
                self._name(node.target, node.value)

    def _name(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its_value in zip(target.elts, value.elts, strict=False):
                self._name(one, its_value)
        if not isinstance(target, ast.Name):
            return
        number = self.number(value)
        if target.id in self.numbers and self.numbers[target.id] != number:
            number = None
        self.numbers[target.id] = number
        sort = self.sort(value)
        if sort and self.sorts.get(target.id) != "span":
            self.sorts[target.id] = sort

    def number(self, node: ast.expr) -> float | None:
        """Return what `node` is worth where that can be read off the file."""
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return float(value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.number(operand)
                return None if value is None else -value
            case ast.Name(id=name):
                return self.numbers.get(name)
            case ast.BinOp(left=left, op=op, right=right):
                return _computed(self.number(left), op, self.number(right))
        return None

    def sort(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name):
                known = self.sorts.get(name, "")
                return known or ("span" if _SPAN.search(name) else "")
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if (
                name in _PROCESSOR_CLOCKS
            ):
                return "processor"
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[]) if (
                name in _CLOCKS
            ):
                return "moment"
            case ast.Call(func=ast.Name(id=name), args=args) if name in _SAME_SORT:
                return self._of_several(args)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                sorts = self.sort(left), self.sort(right)
                if sorts == ("moment", "moment"):
                    return "span"
                return self._of_several([left, right])
            case ast.BinOp(left=left, right=right):
                return self._of_several([left, right])
        return ""

    def _of_several(self, nodes: list[ast.expr]) -> str:
        sorts = {self.sort(node) for node in nodes}
        return next((sort for sort in ("processor", "span", "moment") if sort in sorts), "")


def _computed(left: float | None, op: ast.operator, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() if right:
            return left / right
    return None


class _Checker(ast.NodeVisitor):
    def __init__(self, names: _Names) -> None:
        self.names = names
        self.faults: list[tuple[int, str]] = []

    def _patience(self, node: ast.expr, where: str) -> None:
        number = self.names.number(node)
        if number is not None and 0 < number < SHORT_S:
            self.faults.append((node.lineno, f"a patience of {number:g} s ({where})"))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if any(_is_virtual(decorator) for decorator in node.decorator_list):
            return
        plain = node.args.posonlyargs + node.args.args
        arguments = plain[len(plain) - len(node.args.defaults) :] + node.args.kwonlyargs
        defaults = [*node.args.defaults, *node.args.kw_defaults]
        for argument, default in zip(arguments, defaults, strict=True):
            if default is not None and _PATIENCE.search(argument.arg):
                self._patience(default, argument.arg)
        parameters = {argument.arg for argument in (*plain, *node.args.kwonlyargs)}
        for waiting, after in pairwise(node.body):
            if isinstance(waiting, ast.While) and isinstance(after, ast.Return):
                for name in sorted(parameters & _called(waiting.test) & _called(after)):
                    self.faults.append((after.lineno, f"{name} is asked again when it came true"))
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._named(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._named(node.target, node.value)
        self.generic_visit(node)

    def _named(self, target: ast.expr, value: ast.expr) -> None:
        name = getattr(target, "id", "") or getattr(target, "attr", "")
        if _PATIENCE.search(name):
            self._patience(value, name)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            name = str(getattr(key, "value", ""))
            if _PATIENCE.search(name):
                self._patience(value, name)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for side in (node.left, *node.comparators):
            if not isinstance(side, ast.Dict):  # what a value is compared with makes nobody wait
                self.visit(side)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            for text in _IN_TEXT.finditer(node.value):
                if 0 < float(text[1]) < SHORT_S:
                    self.faults.append((node.lineno, f"a patience within a text ({text[0]})"))

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
        for keyword in node.keywords:
            if keyword.arg and _PATIENCE.search(keyword.arg):
                self._patience(keyword.value, keyword.arg)
        if name in _FOR_ONE_NUMBER and len(node.args) == 1:
            self._patience(node.args[0], name)
        if name == "wait_for" and len(node.args) == 2:
            self._patience(node.args[1], name)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add):
            for clock, number in ((node.left, node.right), (node.right, node.left)):
                if isinstance(clock, ast.Call) and self.names.sort(clock) == "moment":
                    self._patience(number, "a moment of a clock")
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        for part in ast.walk(node.test):
            if isinstance(part, ast.Compare):
                self._compare(part)
        self.generic_visit(node)

    def _compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for first, op, second in zip(sides, node.ops, sides[1:], strict=False):
            small, large = (first, second) if isinstance(op, ast.Lt | ast.LtE) else (second, first)
            if isinstance(op, ast.Eq):
                small, large = first, second
                if isinstance(second, ast.Call) and ast.unparse(second.func).endswith("approx"):
                    large = second.args[0]
            elif not isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                continue
            sort = self.names.sort(small)
            if sort not in _BOUNDS:
                continue
            clock, shortest = _BOUNDS[sort]
            number = self.names.number(large)
            if number is not None and number < shortest:
                self.faults.append((node.lineno, f"an assert bounds {clock} by {number:g} s"))
            elif self.names.sort(large) == sort:
                self.faults.append((node.lineno, f"an assert compares two spans of {clock}"))


def _called(node: ast.AST) -> set[str]:
    calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def _is_virtual(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "virtual_time" for n in ast.walk(node))


def _is_virtual_mark(node: ast.stmt) -> bool:
    """Return whether the line is `pytestmark = pytest.mark.virtual_time`."""
    if not isinstance(node, ast.Assign):
        return False
    return ast.unparse(node.targets[0]) == "pytestmark" and _is_virtual(node.value)


def faults(source: str) -> list[tuple[int, str]]:
    """Return the lines of a test file that break one of the rules, and how."""
    tree = ast.parse(source)
    if any(_is_virtual_mark(statement) for statement in tree.body):
        return []
    checker = _Checker(_Names(tree))
    checker.visit(tree)
    return sorted(set(checker.faults))


GOOD = {
    "a long patience": "call(timeout_s=60)",
    "a named one": "asyncio.timeout(PATIENCE_S)",
    "one that runs out": "call(timeout_s=expires(0.3))",
    "a look": "event.wait(0)",
    "asked once": "def wait_until(true):\n    while not (seen := true()):\n        pass\n    return seen",
    "a value that is refused": "call(timeout_s=-1)",
    "words are joined": "', '.join(names)",
    "a key is looked up": "table.get(3)",
    "a lower bound": "begun = time.monotonic()\nassert time.monotonic() - begun >= 0.3",
    "a lower bound, turned": "begun = time.monotonic()\nassert 0.3 <= time.monotonic() - begun",
    "a long bound": "begun = time.monotonic()\nassert time.monotonic() - begun < 60",
    "the processor's time": "begun = time.process_time()\nassert time.process_time() - begun < 60",
    "a name for it": "begun = time.process_time()\ntook = time.process_time() - begun\n"
    "assert took < 10",
    "order": "a = time.monotonic()\nb = time.monotonic()\nassert a < b",
    "a count": "assert server.most > 32",
    "virtual time": "@pytest.mark.virtual_time\nasync def test() -> None:\n"
    "    async with asyncio.timeout(1):\n        assert loop.time() - begun < 3",
    "a module on virtual time": "pytestmark = pytest.mark.virtual_time\nasyncio.timeout(1)",
    "a text with a long one": "main('reward.timeout_s=300')",
    "a body that was sent": "assert seen.body == {'timeout_s': 3.0}",
    "a text with none": "'the key timeout_s is missing'",
}
BAD = {
    "an argument": ("call(timeout_s=5.0)", "a patience of 5 s (timeout_s)"),
    "patience": ("call(patience=0.5)", "a patience of 0.5 s (patience)"),
    "a longer name": ("call(load_timeout_s=5)", "a patience of 5 s (load_timeout_s)"),
    "a key": ("call(**{'timeout_s': 2})", "a patience of 2 s (timeout_s)"),
    "a constant": ("x = 4\ncall(timeout=x)", "a patience of 4 s (timeout)"),
    "a constant's name": ("DEADLINE_S = 20", "a patience of 20 s (DEADLINE_S)"),
    "a field": ("server.timeout_s = 0.2", "a patience of 0.2 s (timeout_s)"),
    "arithmetic": ("call(timeout_s=2 * 10)", "a patience of 20 s (timeout_s)"),
    "a default": ("def f(*, within_s: float = 5): ...", "a patience of 5 s (within_s)"),
    "a block": ("async with asyncio.timeout(5): ...", "a patience of 5 s (timeout)"),
    "wait_for": ("asyncio.wait_for(task, 2)", "a patience of 2 s (wait_for)"),
    "join": ("thread.join(5)", "a patience of 5 s (join)"),
    "wait": ("process.wait(10)", "a patience of 10 s (wait)"),
    "poll": ("connection.poll(1.5)", "a patience of 1.5 s (poll)"),
    "a queue": ("queue.get(timeout=1)", "a patience of 1 s (timeout)"),
    "communicate": ("process.communicate(timeout=10)", "a patience of 10 s (timeout)"),
    "a moment": ("end = time.monotonic() + 5", "a patience of 5 s (a moment of a clock)"),
    "a text": ("main('reward.timeout_s=3')", "a patience within a text (timeout_s=3)"),
    "a mapping in a text": ("'timeout_s: 0.5'", "a patience within a text (timeout_s: 0.5)"),
    "a bound": (
        "begun = time.perf_counter()\nassert time.perf_counter() - begun < 1.0",
        "an assert bounds a wall clock by 1 s",
    ),
    "both bounds": (
        "begun = loop.time()\nassert 0.3 <= loop.time() - begun < 2.9",
        "an assert bounds a wall clock by 2.9 s",
    ),
    "turned": ("assert 3 > elapsed", "an assert bounds a wall clock by 3 s"),
    "a named span": (
        "begun = time.time()\nspent = time.time() - begun\nassert spent / 2 < 4",
        "an assert bounds a wall clock by 4 s",
    ),
    "among others": (
        "assert ok and (took_s <= LIMIT)\nLIMIT = 10",
        "an assert bounds a wall clock by 10 s",
    ),
    "equality": ("assert elapsed == pytest.approx(2)", "an assert bounds a wall clock by 2 s"),
    "two spans": (
        "a = time.monotonic()\nalone = time.monotonic() - a\nb = time.monotonic()\n"
        "longest = max(0, time.monotonic() - b)\nassert longest < alone / 2",
        "an assert compares two spans of a wall clock",
    ),
    "asked twice": (
        "def wait_until(true):\n    while not true() and time.monotonic() < end:\n        pass\n"
        "    return bool(true())",
        "true is asked again when it came true",
    ),
    "the processor's time": (
        "begun = time.process_time()\nassert time.process_time() - begun < 1",
        "an assert bounds the processor's time by 1 s",
    ),
    "of a thread": (
        "begun = time.thread_time()\ntook = time.thread_time() - begun\nassert min(took, 1) < 5",
        "an assert bounds the processor's time by 5 s",
    ),
    "two of them": (
        "a = time.process_time()\nalone = time.process_time() - a\nb = time.process_time()\n"
        "assert time.process_time() - b < 8 * alone",
        "an assert compares two spans of the processor's time",
    ),
}


@pytest.mark.parametrize("source", GOOD.values(), ids=GOOD.keys())
def test_what_is_allowed(source: str) -> None:
    assert faults(source) == []


@pytest.mark.parametrize(("source", "message"), BAD.values(), ids=BAD.keys())
def test_what_is_not(source: str, message: str) -> None:
    ((_, rule),) = faults(source)
    assert rule == message


def test_the_mark_frees_its_own_function_alone() -> None:
    source = "@pytest.mark.virtual_time\nasync def one():\n    f(timeout=1)\n\nf(timeout=2)\n"
    assert faults(source) == [(5, "a patience of 2 s (timeout)")]


@cache
def _by_file() -> dict[str, list[tuple[int, str]]]:
    return {
        path.relative_to(TESTS).as_posix(): faults(path.read_text(encoding="utf-8"))
        for path in sorted(TESTS.rglob("*.py"))
    }


def _lines() -> Iterator[str]:
    for name, lines in _by_file().items():
        if name == Path(__file__).name:
            continue  # this file has examples of all of them
        for line, rule in lines:
            yield f"tests/{name}:{line}: {rule}"


def test_no_test_depends_on_a_machine_that_never_stands_still() -> None:
    assert list(_lines()) == []
