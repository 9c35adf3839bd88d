"""What the text of a test defines and calls."""

from __future__ import annotations

import ast
import builtins
import sys
from typing import Any


def is_reserved(name: str) -> bool:
    """Whether a name is Python's own: a builtin, or a module of the standard library."""
    return hasattr(builtins, name) or name in sys.stdlib_module_names


def tested_names(job: Any) -> set[str]:
    """Return the names that are the candidate's even where Python has them too: the entry point,
    or the one function that assertions without a name of the candidate's own call."""
    names = {job["entry_point"], job["name"]} - {""}
    if names or job["form"] != "asserts":
        return names
    called: set[str] = set()
    own: set[str] = set()
    bound: set[str] = set()
    for test in job["tests"]:
        try:
            tree = ast.parse(test)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called.add(node.func.id)
            if isinstance(node, ast.alias):
                bound.add(node.asname or node.name)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
            elif isinstance(node, ast.Name) and not is_reserved(node.id):
                own.add(node.id)
    if own - bound or len(called) != 1:
        return set()
    return called


def patched(tree: ast.Module) -> str:
    """Return what a test replaces in modules, e.g. sys.stdin, or by unittest.mock.patch; "" where
    it replaces nothing. The code runs in another process, which no replacement reaches."""
    names = imported(tree)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            continue
        path = dotted(node, names)
        if path in ("unittest.mock.patch", "mock.patch"):
            return "unittest.mock.patch"
        root, _, rest = path.partition(".")
        replaces = not isinstance(node.ctx, ast.Load) and bool(rest)
        if replaces and root in sys.stdlib_module_names and root != "unittest":
            return path
    return ""


def imported(tree: ast.Module) -> dict[str, str]:
    """Return the names that imports bind, each with the path of what it stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = str(node.module) + "." + alias.name
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """Return a name's path, an attribute or an entry, e.g. os.environ for os.environ["A"], ""
    where it does not begin with an imported name."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)])


def has_assertion(tree: ast.Module) -> bool:
    """Whether an assertion stands outside of functions and classes."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for statement in tree.body:
        nodes = ast.walk(statement) if not isinstance(statement, definitions) else ()
        if any(isinstance(node, ast.Assert) for node in nodes):
            return True
    return False


def run_cases(tree: ast.Module, namespace: dict[str, Any]) -> int:
    """Run the functions test* without arguments and the TestCases that a test defines. Return how
    many ran. Raises what a function raises, AssertionError for the first failure of a TestCase."""
    count = 0
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test"):
            arguments = statement.args
            if not (arguments.posonlyargs or arguments.args or arguments.kwonlyargs):
                namespace[statement.name]()
                count += 1
        if isinstance(statement, ast.ClassDef):
            count += run_test_case(namespace.get(statement.name))
    return count


def run_test_case(kind: Any) -> int:
    """Run the methods of a class if it is a TestCase. Return how many ran."""
    unittest = sys.modules.get("unittest")
    if unittest is None or not isinstance(kind, type) or not issubclass(kind, unittest.TestCase):
        return 0
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(result)
    problems = [*result.failures, *result.errors]
    if problems:
        raise AssertionError(problems[0][1].strip().rpartition("\n")[2])
    return result.testsRun - len(result.skipped)
