"""The forms in which a row holds tests."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rmrl.rewards.kinds.code.row_tests import NoTestsError, in_row
from rmrl.types import ScoreItem

CHECK = "def check(candidate):\n    assert candidate(1) == 2"


def row(truth: str | None = None, **extra_info: Any) -> ScoreItem:
    return ScoreItem(
        prompt_id="0",
        messages=[{"role": "user", "content": "Q"}],
        response="r",
        rm_prompt="Q",
        ground_truth=truth,
        extra_info=extra_info,
    )


def test_humaneval_is_its_check_of_the_entry_point() -> None:
    tests = in_row(row(test=CHECK, entry_point="f", prompt="import math\ndef f(x):\n"))
    assert tests["tests"] == [f"{CHECK}\n\ncheck(f)\n"]
    assert (tests["entry_point"], tests["prompt"]) == ("f", "import math\ndef f(x):\n")
    assert in_row(row(CHECK, entry_point="f"))["tests"] == tests["tests"]


def test_mbpp_is_one_test_per_assertion() -> None:
    lines = ["assert f(1) == 2", "assert f(2) == 3"]
    tests = in_row(row(test_list=lines, test_setup_code="import re", prompt="Write a function."))
    assert tests["tests"] == lines
    assert (tests["setup"], tests["prompt"], tests["entry_point"]) == ("import re", "", "")
    sanitized = in_row(row(test_list=lines, test_imports=["import math"]))
    assert sanitized["setup"] == "import math"
    assert in_row(row(json.dumps(lines)))["tests"] == lines
    assert in_row(row(json.dumps({"test_list": lines})))["tests"] == lines


def test_inputs_and_outputs_are_standard_input_and_output() -> None:
    cases: dict[str, Any] = {"inputs": ["1\n", ["1", "2"]], "outputs": ["2\n", 3]}
    expected = {"form": "stdio", "cases": [["1\n", "2\n"], ["1\n2", "3"]]}
    assert in_row(row(json.dumps(cases))) == expected
    assert in_row(row(**cases)) == expected
    assert in_row(row("x", cases=json.dumps(cases)), "extra_info.cases") == expected
    pairs = [{"input": "1\n", "output": "2\n"}]
    assert in_row(row(json.dumps(pairs))) == {"form": "stdio", "cases": [["1\n", "2\n"]]}


def test_with_fn_name_they_are_arguments_and_results() -> None:
    of_lists: dict[str, Any] = {"fn_name": "f", "inputs": [[1, "a"]], "outputs": [[2]]}
    assert in_row(row(**of_lists))["cases"] == [[[1, "a"], [[2]]]]
    of_lines: dict[str, Any] = {"fn_name": "f", "inputs": ['1\n"a"'], "outputs": ["5"]}
    assert in_row(row(**of_lines)) == {
        "form": "calls",
        "name": "f",
        "cases": [[[1, "a"], ["5", 5]]],
    }


def test_livecodebench_names_its_function_in_metadata() -> None:
    case = {"input": '[1]\n"a"', "output": "[2]", "testtype": "functional"}
    expected = {"form": "calls", "name": "f", "cases": [[[[1], "a"], ["[2]", [2]]]]}
    inside = [{**case, "metadata": {"func_name": "f"}}]
    assert in_row(row(json.dumps(inside))) == expected
    assert in_row(row(json.dumps([case]), metadata='{"func_name": "f"}')) == expected
    with pytest.raises(NoTestsError, match="no func_name"):
        in_row(row(json.dumps([case])))
    stdin = [{"input": "1", "output": "2", "testtype": "stdin", "metadata": {"func_name": None}}]
    assert in_row(row(json.dumps(stdin)))["form"] == "stdio"


def test_mbpp_plus_has_its_assertions_in_a_list_too() -> None:
    lines = ["assert f(1) == 2"]
    tests = in_row(row(test="import numpy\nresults = [2]", test_list=lines, prompt="Write f."))
    assert (tests["tests"], tests["prompt"]) == (lines, "")


def test_lists_may_be_json_texts_or_arrays() -> None:
    stdio = {"form": "stdio", "cases": [["1", "2"], ["3", "4"]]}
    assert in_row(row(inputs='["1", "3"]', outputs='["2", "4"]')) == stdio
    assert in_row(row(inputs=np.array(["1", "3"]), outputs=np.array(["2", "4"]))) == stdio
    lines = np.array(["assert f(1) == 2", "assert f(2) == 3"], dtype=object)
    assert in_row(row(test_list=lines))["tests"] == list(lines)
    nested = np.empty(1, dtype=object)
    nested[0] = np.array([1, 2])
    tests = in_row(row(inputs=nested, outputs=np.array([3]), fn_name="f"))
    assert json.dumps(tests["cases"]) == "[[[1, 2], [3]]]"


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ("Write a function f that adds one.", False),
        ("Solution", False),
        ("Complete this:\n\ndef f(x):\n", False),
        ('import re\n\ndef f(x):\n    "Add one."\n', True),
        ("class A:\n    def f(self, x):", True),
        ("def f(x):\n", True),
    ],
)
def test_a_prompt_in_words_is_no_code(prompt: str, code: bool) -> None:
    tests = in_row(row(test=CHECK, entry_point="f", prompt=prompt))
    assert tests["prompt"] == (prompt if code else "")


def test_the_first_tests_of_many() -> None:
    cases: dict[str, Any] = {"inputs": list("abc"), "outputs": list("abc")}
    assert in_row(row(**cases), at_most=2)["cases"] == [["a", "a"], ["b", "b"]]


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (row(), "ground_truth holds no tests"),
        (row(" "), "ground_truth holds no tests"),
        (row("{broken"), "begins like JSON and is none"),
        (row('{"answer": 7}'), "ground_truth holds no tests; needed are"),
        (row("[]"), "ground_truth holds no tests"),
        (row(test=CHECK), "no entry_point"),
        (row(test=CHECK, entry_point="f(1)"), "no entry_point"),
        (row(inputs=["1"], outputs=[]), "1 inputs and 0 outputs"),
        (row(inputs="1 2", outputs=["3"]), "extra_info.inputs is no list"),
        (row(inputs=[], outputs=[]), "the row's list of tests is empty"),
        (row(inputs=["{"], outputs=["1"], fn_name="f"), "lists of arguments"),
        (row(inputs=["1"], outputs=["1"], fn_name="a b"), "is no name of a function"),
        (row('[{"input": "1"}]'), "no input and output"),
    ],
)
def test_a_row_without_tests_says_what_is_missing(item: ScoreItem, part: str) -> None:
    with pytest.raises(NoTestsError, match=part.replace("(", r"\(")):
        in_row(item)


def test_a_test_without_a_check_is_not_called_as_one() -> None:
    """As in BigCodeBench: classes of unittest, which name the function themselves."""
    test = "import unittest\nclass TestCases(unittest.TestCase):\n    pass"
    tests = in_row(row(test=test, entry_point="task_func"))
    assert tests["tests"] == [test]
