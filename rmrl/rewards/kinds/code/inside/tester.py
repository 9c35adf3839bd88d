"""The tests of a job, run one after another, and their verdicts."""

from __future__ import annotations

import ast
import math
import sys
import warnings
from typing import Any

from rmrl.rewards.kinds.code.inside.candidate import MOST_DETAIL, described
from rmrl.rewards.kinds.code.inside.link import Far, GoneError, Link, TestsError
from rmrl.rewards.kinds.code.inside.testcode import (
    has_assertion,
    is_reserved,
    patched,
    run_cases,
    tested_names,
)


def tests(job: Any) -> list[Any]:
    """Return [passed, detail] of each test that was run, in order; "unfit" in the place of passed
    for tests that cannot be run, "lost" where no process can be started."""
    try:
        # Before any code of the candidate runs, which could make them fail.
        check_tests(job)
        namespace = prepared(job)
    except TestsError as error:
        return [["unfit", str(error)]]
    try:
        link = Link(job)
    except OSError as error:
        return [["lost", str(error)]]
    verdicts: list[Any] = []
    try:
        namespace = names_of_tests(job, link, namespace)
    except GoneError as error:
        return [[False, str(error)]]
    except TestsError as error:
        return [["unfit", str(error)]]
    except BaseException as error:
        return [[False, "loading: " + ": ".join(described(error))]]
    failed = False
    for test in job["tests"]:
        passed, detail = verdict(job, test, namespace, link)
        # Details of later failures would make the report of many tests too long.
        verdicts.append([passed, "" if failed and passed is False else detail])
        failed = failed or passed is not True
        if passed == "unfit" or (failed and job["until_failure"]):
            break
    link.process.kill()
    return verdicts


def check_tests(job: Any) -> None:
    """Raise TestsError for tests that are no Python, and for those that replace parts of modules,
    which would fail every program."""
    if job["form"] != "asserts":
        return
    for source in (job["setup"], *job["tests"]):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                replaced = patched(ast.parse(source))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise TestsError("the test is no Python: " + str(error)) from None
        if replaced:
            raise TestsError(
                "the test replaces " + replaced + ", which the code, in a process of its own, does"
                " not see"
            )


class Names(dict[str, Any]):
    """The globals of the tests. A value of the candidate is fetched when a test reads it: a number
    or text every time, any other once, so that it stays the same object."""

    def __init__(self, **names: Any) -> None:
        super().__init__(names)
        self.later: dict[str, Any] = {}
        """Name -> (link, request for the value)."""

    def __missing__(self, name: str) -> Any:
        link, request = self.later[name]
        value = link.ask(request)
        if not isinstance(value, (int, float, str)):
            self[name] = value
        return value


def prepared(job: Any) -> Names | None:
    """Return the globals that the row's prompt and setup make without the candidate, None for a
    setup that needs a name of the candidate. Raises TestsError for one that fails otherwise."""
    namespace = names_of_prompt(job)
    for name in tested_names(job):
        namespace.pop(name, None)  # of the prompt; the setup may need the candidate's
    try:
        exec(compile(job["setup"], "<setup>", "exec", dont_inherit=True), namespace)
    except NameError:
        return None
    except BaseException as error:
        raise TestsError("the setup of the tests: " + ": ".join(described(error))) from None
    return namespace


def names_of_prompt(job: Any) -> Names:
    """Return globals with the names of the row's prompt. Raises TestsError where it fails."""
    namespace = Names(__name__="tests")
    try:
        exec(compile(job["prompt"], "<prompt>", "exec", dont_inherit=True), namespace)
    except BaseException as error:
        raise TestsError("the prompt of the tests: " + ": ".join(described(error))) from None
    return namespace


def names_of_tests(job: Any, link: Link, own: Names | None) -> Names:
    """Return the globals of the tests: those of the prompt and of the row's setup (`own`, see
    `prepared`), and the candidate's. No name of the candidate hides a builtin, a module or a name
    of the row's own, except those of `tested_names`."""
    tested = tested_names(job)
    namespace = own
    if namespace is None:
        namespace = names_of_prompt(job)
    answer = link.exchange(job["candidate"])
    for name, packed in answer["names"].items():
        module = isinstance(packed, list) and packed[0] == "m" and name in sys.stdlib_module_names
        reserved = (is_reserved(name) and not module) or name in namespace
        if name.startswith("__") or (reserved and name not in tested):
            continue
        if isinstance(packed, list) and packed[0] == "v":
            namespace.pop(name, None)
            namespace.later[name] = (link, {"do": "get", "object": packed[1], "name": name})
            continue
        try:
            namespace[name] = link.unpack(packed)
        except (ValueError, ImportError):
            continue
    entry = job["entry_point"]
    if entry and not (isinstance(namespace.get(entry), Far) and entry in answer["names"]):
        raise NameError("the code has no function " + repr(entry))
    if own is None:
        candidates = {
            name: namespace[name] for name in tested & answer["names"].keys() & namespace.keys()
        }
        exec(compile(job["setup"], "<setup>", "exec", dont_inherit=True), namespace)
        namespace.update(candidates)
    return namespace


def verdict(job: Any, test: Any, namespace: dict[str, Any], link: Link) -> Any:
    """Run one test. A candidate that is gone and a test that cannot be run decide even where the
    test catches the error."""
    passed, detail = outcome(job, test, namespace, link)
    if link.unfit:
        return ["unfit", link.unfit]
    if link.gone:
        return [False, link.gone]
    return [passed, detail]


def outcome(job: Any, test: Any, namespace: dict[str, Any], link: Link) -> Any:
    """Run one test, and return how it ended by itself."""
    tree = ast.Module([], [])
    compiled = None
    if job["form"] == "asserts":
        try:
            tree = ast.parse(test)
            compiled = compile(tree, "<test>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return ["unfit", "the test is no Python: " + str(error)]
    sent = link.sent
    try:
        if compiled is not None:
            exec(compiled, namespace)
            if not (run_cases(tree, namespace) or link.sent > sent or has_assertion(tree)):
                return ["unfit", "a test runs no assertion and does not use the code"]
            return [True, ""]
        arguments, accepted = test
        result = called(job["name"], namespace)(*arguments)
        if any(same(result, expected) for expected in accepted):
            return [True, ""]
        return [False, "wrong result " + short(result)]
    except TestsError as error:
        return ["unfit", str(error)]
    except AssertionError as error:
        return [False, "assertion failed" + (": " + short(str(error)) if str(error) else "")]
    except GoneError as error:
        return [False, str(error)]
    except BaseException as error:
        return [False, ": ".join(described(error))]


def called(name: str, namespace: dict[str, Any]) -> Any:
    """Return the function of that name, or the method of a class Solution."""
    function = namespace.get(name)
    if function is None and isinstance(namespace.get("Solution"), Far):
        function = getattr(namespace["Solution"](), name)
    if not isinstance(function, Far):
        raise NameError("the code has no function " + repr(name))
    return function


def same(result: Any, expected: Any) -> bool:
    """Whether a returned value is the one that JSON could write down: tuples are lists, keys are
    text, numbers with a fraction are close. A list of one expected value may stand for it."""
    value = plain(result)
    wanted = plain(expected)
    if alike(value, wanted):
        return True
    return isinstance(wanted, list) and len(wanted) == 1 and alike(value, wanted[0])


def plain(value: Any) -> Any:
    """Return the value in the types of JSON."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return value


def alike(value: Any, wanted: Any) -> bool:
    """Whether two plain values are equal, fractions up to 1e-9."""
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(alike, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(
            alike(value[key], wanted[key]) for key in value
        )
    if isinstance(value, float) and isinstance(wanted, (int, float)):
        if math.isnan(value) and math.isnan(wanted):
            return True
        return value == wanted or math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return bool(value == wanted)


def short(value: Any) -> str:
    """Return a value as a short text."""
    return repr(value)[:MOST_DETAIL] if not isinstance(value, str) else value[:MOST_DETAIL]
