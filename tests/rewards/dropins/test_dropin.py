"""Drop-in files: what is recognised, what each mistake is called, and what a function is called
with."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.dropin import (
    FunctionSource,
    call_with_known_arguments,
    load_dropin,
    load_function,
    load_module,
    rule_arguments,
    without_postprocess,
)

RULE = (
    "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return"
    " len(solution_str)\n"
)
MODEL = """
SPEC = {"kind": "generative", "path": "judge"}
def rm_preprocess(text_prompts, text_responses, tgt_tokenizer, ground_truths=None):
    return [f"{p} {r} {g}" for p, r, g in zip(text_prompts, text_responses, ground_truths, strict=True)]
def rm_postprocess(results):
    return [float(r) for r in results]
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text: str, name: str = "mine.py") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def error_of(path: Path) -> str:
    with pytest.raises(RewardFunctionError) as caught:
        load_dropin(path, "mine", known_keys=("kind", "path"))
    return str(caught.value)


def test_a_rule_is_recognised(write):
    path = write(RULE)
    dropin = load_dropin(path, "mine")
    assert (dropin.kind, dropin.name, dropin.path, dict(dropin.spec)) == ("rule", "mine", path, {})
    assert dropin.is_rule
    assert dropin.compute_score("s", "four", None) == 4
    assert dropin.source.load()("s", "four", None) == 4
    assert dropin.code_hash == hashlib.sha256(path.read_bytes()).hexdigest()
    assert dropin.preprocess is dropin.postprocess is None


def test_a_model_reward_is_recognised_and_gets_the_columns_it_names(write):
    dropin = load_dropin(write(MODEL), "mine")
    assert (dropin.kind, dropin.spec["path"], dropin.source) == ("model", "judge", None)
    assert not dropin.is_rule
    columns = {
        "ground_truths": ["4"],
        "prompts": ["never passed"],
        "extra_infos": [{}],
        "data_sources": [""],
    }
    assert call_with_known_arguments(dropin.preprocess, (["2+2?"], ["five"], None), columns) == [
        "2+2? five 4"
    ]
    assert call_with_known_arguments(dropin.postprocess, (["0.5"],), columns) == [0.5]


def test_a_drop_in_never_shadows_a_package_of_its_name(write):
    path = write("import json\nX = json.dumps(1)\n" + RULE, "json.py")
    before = sys.modules["json"]
    load_dropin(path, "json")
    assert sys.modules["json"] is before
    assert str(path.parent) not in sys.path


def test_a_file_is_executed_once_until_its_text_changes(write):
    path = write("RUNS = []\n" + RULE)
    first = load_dropin(path, "mine").compute_score
    assert load_dropin(path, "other").compute_score is first
    write("RUNS = [1]\n" + RULE)
    assert load_dropin(path, "mine").compute_score is not first


def test_a_file_knows_where_it_stands(write):
    path = write("from pathlib import Path\nHERE = Path(__file__)\n" + RULE)
    assert path == load_module(path).HERE


def test_a_frozen_source_keeps_the_text_it_was_made_from(write):
    path = write("def compute_score(solution_str):\n    return 1\n")
    source = FunctionSource(str(path)).frozen()
    write("def compute_score(solution_str):\n    return 2\n")
    assert source.load()("x") == 1
    assert FunctionSource(str(path)).load()("x") == 2


def test_a_dataclass_in_a_drop_in_works(write):
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass"
        " A:\n    x: int = 3\n"
    )
    assert (
        load_dropin(
            write(text + "def compute_score(solution_str):\n    return A().x\n"), "mine"
        ).compute_score("")
        == 3
    )


def test_neither_kind_of_function_shows_both_signatures(write):
    message = error_of(write("def score(x):\n    return 1\n"))
    assert "compute_score(data_source, solution_str, ground_truth, extra_info=None)" in message
    assert "rm_preprocess(text_prompts, text_responses, tgt_tokenizer)" in message
    assert "found: none of them" in message


def test_rm_postprocess_alone_names_the_other_half(write):
    message = error_of(write("def rm_postprocess(*a):\n    return []\n"))
    assert "defines rm_postprocess but not rm_preprocess" in message


def test_rm_preprocess_alone_is_loaded_and_its_error_can_be_made(write):
    dropin = load_dropin(write("def rm_preprocess(*a):\n    return []\n"), "mine")
    assert (dropin.kind, dropin.postprocess) == ("model", None)
    assert "defines rm_preprocess but not rm_postprocess" in without_postprocess(dropin)
    assert "defines rm_preprocess but not" in error_of(
        write("def rm_preprocess(*a):\n    return []\n" + RULE)
    )


def test_both_kinds_in_one_file_need_a_kind(write):
    assert "SPEC = {'kind': 'rule'}" in error_of(write(MODEL.replace("SPEC", "SPEC_") + RULE))
    assert (
        load_dropin(
            write("SPEC = {'kind': 'rule'}\n" + MODEL.replace("SPEC", "SPEC_") + RULE), "mine"
        ).kind
        == "rule"
    )
    assert load_dropin(write(MODEL + RULE), "mine").kind == "model"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("def compute_score(solution_str, labels): ...", "needs labels, which no rule is given"),
        (
            "def compute_score(solution_str, completions): ...",
            "names both solution_str and completions: it is either compute_score(",
        ),
        ("def compute_score(labels, /, completions): ...", "takes labels by position only"),
        ("def compute_score(ground_truth): ...", "does not take solution_str"),
        ("def compute_score(solution_str, /): ...", "needs solution_str"),
        (
            "def rm_preprocess(a, b): ...\ndef rm_postprocess(r): ...",
            "takes 2 positional arguments instead of 3",
        ),
        ("def rm_preprocess(a, b, c, labels): ...\ndef rm_postprocess(r): ...", "needs labels"),
        (
            "def rm_preprocess(a, b, c): ...\ndef rm_postprocess(): ...",
            "takes 0 positional arguments instead of 1",
        ),
    ],
)
def test_wrong_parameters_are_named(write, text, part):
    assert part in error_of(write(text))


def test_an_import_that_raises_names_file_line_and_exception(write):
    path = write("import os\n\nVALUE = 1 / 0\n" + RULE)
    message = error_of(path)
    assert f"{path}:3" in message
    assert "ZeroDivisionError: division by zero" in message


def test_a_syntax_error_names_its_line(write):
    path = write("def compute_score(:\n")
    assert f"{path}:1" in error_of(path)
    assert "SyntaxError" in error_of(path)


def test_sys_exit_at_import_does_not_end_the_run(write):
    assert "SystemExit" in error_of(write("raise SystemExit(3)\n"))


@pytest.mark.parametrize(
    ("spec", "part"),
    [("SPEC = []", "SPEC is list"), ("SPEC = {'kindd': 'rule'}", "'kindd'; did you mean 'kind'?")],
)
def test_a_malformed_spec_is_refused(write, spec, part):
    assert part in error_of(write(f"{spec}\n{RULE}"))


def test_any_spec_key_is_accepted_without_a_list_of_keys(write):
    assert load_dropin(write("SPEC = {'mine': 1}\n" + RULE), "mine").spec == {"mine": 1}


def test_a_missing_file_is_an_error(tmp_path):
    assert "cannot be read" in error_of(tmp_path / "none.py")


def test_a_function_of_a_package_is_a_rule(write, monkeypatch):
    path = write(
        "def exact(solution_str, ground_truth, **kwargs):\n    return solution_str =="
        " ground_truth\n",
        "my_rules_package.py",
    )
    monkeypatch.syspath_prepend(path.parent)
    dropin = load_function("my_rules_package:exact", "exact")
    assert (dropin.kind, dropin.path) == ("rule", path)
    assert dropin.compute_score("a", "a") is True
    path.write_text("class Rules:\n    @staticmethod\n    def length(s):\n        return len(s)\n")
    assert FunctionSource(str(path), "Rules.length").load()("four") == 4
    with pytest.raises(RewardFunctionError, match="did you mean 'exact'"):
        load_function("my_rules_package:exacd", "exact")
    with pytest.raises(RewardFunctionError, match="No module named 'no_such_package'"):
        load_function("no_such_package.rules:f", "f")


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("decimal:Decimal", "is a class without __call__"),
        ("operator:itemgetter", r"itemgetter\(\) raised TypeError"),
        ("math:pi", "is float; name a function"),
        ("operator:floordiv", r"needs a, b, which no rule is given"),
    ],
)
def test_what_cannot_be_called_is_no_rule(target, part):
    with pytest.raises(RewardFunctionError, match=part):
        load_function(target, "d")


def signature(parameters: str):
    """A function with these parameters that returns all it was called with."""
    scope: dict = {}
    exec(f"def function({parameters}):\n    return locals()\n", scope)
    return scope["function"]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("solution_str, **kwargs", ("data_source", "solution_str", "ground_truth", "extra_info")),
        ("ground_truth, solution_str, method='strict'", ("solution_str", "ground_truth")),
        ("solution_str, *, response_tokens", ("solution_str", "response_tokens")),
    ],
)
def test_rules_get_what_they_name(parameters, expected):
    assert rule_arguments(signature(parameters), "here") == expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("prompts, b, c, data_sources", {"prompts": "p", "b": "r", "c": 0, "data_sources": "d"}),
        ("a, b, c, *, data_sources", {"a": "p", "b": "r", "c": 0, "data_sources": "d"}),
        (
            "prompts, *rest, **columns",
            {"prompts": "p", "rest": ("r", 0), "columns": {"data_sources": "d"}},
        ),
        ("a, b, c, other=1", {"a": "p", "b": "r", "c": 0, "other": 1}),
    ],
)
def test_columns_go_where_they_are_named_and_never_twice(parameters, expected):
    columns = {"prompts": "column", "data_sources": "d"}
    assert call_with_known_arguments(signature(parameters), ("p", "r", 0), columns) == expected
