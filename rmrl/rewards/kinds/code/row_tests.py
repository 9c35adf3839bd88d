"""The tests of a row, in the forms that data sets of programming tasks have.

    {"test": "def check(candidate): ...", "entry_point": "f", "prompt": "..."}     HumanEval
    {"test_list": ["assert f(1) == 2", ...], "test_setup_code": "..."}             MBPP
    {"inputs": [...], "outputs": [...]}                  standard input and output: APPS, TACO, verl
    {"inputs": [...], "outputs": [...], "fn_name": "f"}  calls: arguments and returned value
    [{"input": "...", "output": "..."}, ...]             pairs: LiveCodeBench; with testtype
                                 functional they are calls, metadata.func_name names the function

They stand in extra_info, or as an object or JSON text in ground_truth or in the field that the
reward names. A text that is no JSON is Python code with assertions.
"""

from __future__ import annotations

import ast
import contextlib
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.rewards.kinds.shared.row_fields import field_of
from rmrl.types import ScoreItem

Tests = dict[str, Any]
"""{"form": "asserts", "setup", "prompt", "entry_point", "tests": [code, ...]},
{"form": "calls", "name", "cases": [[arguments, [accepted result, ...]], ...]} or
{"form": "stdio", "cases": [[input, output], ...]}."""


_ENTRIES = (
    *("test", "test_list", "test_setup_code", "test_imports", "entry_point", "prompt"),
    *("inputs", "outputs", "fn_name", "func_name", "metadata"),
)
"""Entries of extra_info that are read."""


class NoTestsError(Exception):
    """A row without tests that can be run. The text is a sentence."""


def in_row(item: ScoreItem, field: str = "", *, at_most: int = 0) -> Tests:
    """Return the tests of a row. `field`: the field that holds them, "" for those that are looked
    for in extra_info, then in ground_truth. `at_most`: the first tests of a longer list. 0: all.

    Raises NoTestsError.
    """
    extra: dict[str, Any] = {
        name: _plain(item.extra_info[name]) for name in _ENTRIES if name in item.extra_info
    }
    if field:
        tests = _of_value(field_of(item, field), extra, where=field)
    elif _known(extra):
        tests = _of_mapping(extra, extra, where="extra_info")
    else:
        tests = _of_value(item.ground_truth, extra, where="ground_truth")
    key = "tests" if tests["form"] == "asserts" else "cases"
    if not tests[key]:
        raise NoTestsError("the row's list of tests is empty")
    if at_most:
        tests[key] = tests[key][:at_most]
    return tests


def _plain(value: Any) -> Any:
    """The value with lists in the place of arrays, which tables hold."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _known(entries: Mapping[str, Any]) -> bool:
    """Whether an object holds tests in one of the forms."""
    if entries.get("test") or entries.get("test_list"):
        return True
    return entries.get("inputs") is not None and entries.get("outputs") is not None


def _of_value(value: Any, extra: Mapping[str, Any], *, where: str) -> Tests:
    value = _plain(value)
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except ValueError:
            raise NoTestsError(f"{where} begins like JSON and is none") from None
    if isinstance(value, Mapping):
        return _of_mapping(value, extra, where=where)
    if isinstance(value, str) and value.strip():
        if "def check(" in value:
            return _of_mapping({"test": value}, extra, where=where)
        return _asserts([value], {}, extra)
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return _of_list(value, extra, where=where)
    raise NoTestsError(
        f"{where} holds no tests; needed are test and entry_point, test_list, or inputs and outputs"
    )


def _of_mapping(entries: Mapping[str, Any], extra: Mapping[str, Any], *, where: str) -> Tests:
    name = str(entries.get("entry_point") or extra.get("entry_point") or "")
    # MBPP+ has the assertions of test_list once more in `test`, for a runner of its own.
    if entries.get("test") and (name or not entries.get("test_list")):
        if not name.isidentifier():
            raise NoTestsError(f"{where} has a test and no entry_point, the function's name")
        test = str(entries["test"])
        if "def check(" in test:
            test += f"\n\ncheck({name})\n"
        return _asserts([test], entries, extra)
    if entries.get("test_list"):
        return _asserts([str(test) for test in entries["test_list"]], entries, extra)
    if not _known(entries):
        raise NoTestsError(
            f"{where} holds no tests; needed are test and entry_point, test_list, or inputs and"
            " outputs"
        )
    inputs = _listed(entries["inputs"], where=f"{where}.inputs")
    outputs = _listed(entries["outputs"], where=f"{where}.outputs")
    if len(inputs) != len(outputs):
        raise NoTestsError(f"{where} has {len(inputs)} inputs and {len(outputs)} outputs")
    name = _function_name(entries) or _function_name(extra)
    return _cases(list(zip(inputs, outputs, strict=True)), name, where=where)


def _listed(value: Any, *, where: str) -> list[Any]:
    """A list, or the list in a JSON text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if not isinstance(value, list):
        raise NoTestsError(f"{where} is no list, nor the JSON text of one")
    return value


def _function_name(entries: Mapping[str, Any]) -> str:
    """The function that is called, "" where entries name none. LiveCodeBench names it in
    `metadata`, an object or its JSON text."""
    metadata = entries.get("metadata")
    if isinstance(metadata, str):
        with contextlib.suppress(ValueError):
            metadata = json.loads(metadata)
    for place in (entries, metadata):
        if isinstance(place, Mapping):
            name = place.get("fn_name") or place.get("func_name")
            if name:
                return str(name)
    return ""


def _of_list(values: Sequence[Any], extra: Mapping[str, Any], *, where: str) -> Tests:
    if all(isinstance(value, str) for value in values):
        return _asserts(list(values), {}, extra)
    pairs: list[tuple[Any, Any]] = []
    for value in values:
        if not isinstance(value, Mapping) or "input" not in value or "output" not in value:
            raise NoTestsError(f"{where} is a list whose entries have no input and output")
        pairs.append((value["input"], value["output"]))
    name = _function_name(values[0]) or _function_name(extra)
    kinds = {value.get("testtype") for value in values if value.get("testtype")}
    if "functional" in kinds and not name:
        raise NoTestsError(f"{where} has tests of a function and no func_name in metadata")
    if kinds == {"stdin"}:
        name = ""
    return _cases(pairs, name, where=where)


def _asserts(tests: list[str], entries: Mapping[str, Any], extra: Mapping[str, Any]) -> Tests:
    """`entries`: the object that holds the tests; what it lacks may stand in `extra`."""
    setup: list[str] = []
    imports = entries.get("test_imports") or extra.get("test_imports")
    if imports is not None:
        setup += [imports] if isinstance(imports, str) else [str(line) for line in imports]
    setup.append(str(entries.get("test_setup_code") or extra.get("test_setup_code") or ""))
    prompt = ""
    if entries.get("test"):
        prompt = _begun(entries.get("prompt") or extra.get("prompt"))
    return {
        "form": "asserts",
        "setup": "\n".join(part for part in setup if part),
        "prompt": prompt,
        "entry_point": str(entries.get("entry_point") or extra.get("entry_point") or ""),
        "tests": tests,
    }


def _begun(prompt: Any) -> str:
    """The prompt where it is the begin of a program, "" where it is a task in words."""
    if not isinstance(prompt, str):
        return ""
    last = prompt.rstrip().rpartition("\n")[2]
    body = " " * (len(last) - len(last.lstrip()) + 4) + "pass"
    for text in (prompt, f"{prompt.rstrip()}\n{body}"):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                statements = ast.parse(text).body
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import)
            if any(isinstance(each, (*kinds, ast.ImportFrom)) for each in statements):
                return prompt
    return ""


def _cases(pairs: Sequence[tuple[Any, Any]], name: str, *, where: str) -> Tests:
    if not name:
        cases: list[list[Any]] = [[_lines(value), _lines(expected)] for value, expected in pairs]
        return {"form": "stdio", "cases": cases}
    if not name.isidentifier():
        raise NoTestsError(f"{where}: fn_name {name!r} is no name of a function")
    calls: list[list[Any]] = []
    for value, expected in pairs:
        try:
            arguments = _values(value)
        except ValueError:
            raise NoTestsError(
                f"{where}: with fn_name the inputs are lists of arguments, or JSON values line by"
                " line"
            ) from None
        # A text is a result as it stands, and so is the JSON value in it.
        accepted = [expected]
        if isinstance(expected, str):
            with contextlib.suppress(ValueError):
                accepted.append(json.loads(expected))
        calls.append([arguments, accepted])
    return {"form": "calls", "name": name, "cases": calls}


def _lines(value: Any) -> str:
    """Text for standard input, or expected of standard output. A list holds its lines."""
    if isinstance(value, list | tuple):
        return "\n".join(str(line) for line in value)
    return str(value)


def _values(value: Any) -> list[Any]:
    """A call's arguments."""
    if isinstance(value, str):
        return [json.loads(line) for line in value.split("\n") if line.strip()]
    if isinstance(value, list | tuple):
        return list(value)
    raise ValueError(value)
