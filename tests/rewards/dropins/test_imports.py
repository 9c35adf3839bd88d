"""What a reward file may import, in this process and in a worker."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import sys
from pathlib import Path

import pytest

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins import imports, names_of_verl
from rmrl.rewards.dropins.dropin import (
    DropIn,
    FunctionSource,
    describe_exception,
    function_dropin,
    load_dropin,
    load_module,
)
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreResult
from tests.patience import expires
from tests.rewards.parts import items, make_scorer, rows, rule, scored

RULE = (
    "\ndef compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return"
    " float(len(WORDS))\n"
)


@pytest.fixture(autouse=True)
def same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """sys.path and the modules known are those of before, afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())


@pytest.mark.parametrize(
    "line",
    [
        "from sibling_words import WORDS",
        "import sibling_words; WORDS = sibling_words.WORDS",
        "from .sibling_words import WORDS",
        "from . import sibling_words; WORDS = sibling_words.WORDS",
        "from verl.workers.reward_function.sibling_words import WORDS",
        "from verl.utils.reward_score.sibling_words import WORDS",
        "from verl.utils.reward_score import sibling_words; WORDS = sibling_words.WORDS",
    ],
)
async def test_a_sibling_is_found_here_and_in_a_worker(tmp_path: Path, line: str):
    (tmp_path / "sibling_words.py").write_text("WORDS = ['a', 'b', 'c']\n")
    path = tmp_path / "mine.py"
    path.write_text(line + RULE)
    assert load_module(path).WORDS == ["a", "b", "c"]
    assert not [
        name for name in sys.modules if name.partition(".")[0] == "verl"
    ]  # only while the file is executed
    spec = rule(tmp_path, "other", "return 0.0")
    path.write_text(line + RULE)
    dropin = load_dropin(path, "mine")
    batch = await scored([_with(spec, dropin)], rows("x"))
    assert batch.scores.results[0][0].value == 3.0


def _with(spec: RewardSpec, dropin: DropIn) -> RewardSpec:
    return dataclasses.replace(spec, name="mine", dropin=dropin, function=dropin.source)


def test_a_part_of_verl_that_is_not_here_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text("import json\nfrom verl.utils.hdfs_io import copy\n" + RULE)
    with pytest.raises(RewardFunctionError) as caught:
        load_module(path)
    assert f"{path}:2" in str(caught.value)
    assert "from verl.utils.hdfs_io import copy" in str(caught.value)
    assert (
        "there is no hdfs_io.py beside the file: copy what the file needs of verl into a file"
        " beside it" in str(caught.value)
    )


def test_a_package_of_verl_without_files_has_only_what_stands_beside_the_file(tmp_path: Path):
    (tmp_path / "mine.py").write_text("from verl.utils.reward_score import other\n" + RULE)
    with pytest.raises(RewardFunctionError, match=r"no other\.py beside the file"):
        load_module(tmp_path / "mine.py")
    (tmp_path / "all.py").write_text("from verl.utils.reward_score import *\n" + RULE)
    assert load_module(tmp_path / "all.py").compute_score is not None


INNER = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return helper(solution_str)


def helper(text):
    {line}
    return float(len(WORDS)) + len(SEEN)
"""


@pytest.mark.parametrize(
    "line",
    [
        "from verl.workers.reward_function.sibling_words import SEEN, WORDS",
        "from verl.utils.reward_score import sibling_words as s; SEEN, WORDS = s.SEEN, s.WORDS",
        "import verl.utils.reward_score.sibling_words as s; SEEN, WORDS = s.SEEN, s.WORDS",
        "import verl.utils.reward_score.sibling_words; "
        "s = verl.utils.reward_score.sibling_words; SEEN, WORDS = s.SEEN, s.WORDS",
    ],
)
async def test_a_function_imports_its_siblings_by_the_names_of_verl(tmp_path: Path, line: str):
    """The sibling is executed once: what it counts goes on between calls."""
    (tmp_path / "sibling_words.py").write_text(
        "from verl.utils.reward_score.more import WORDS\nSEEN = []\n"
    )
    (tmp_path / "more.py").write_text("WORDS = ['a', 'b', 'c']\n")
    path = tmp_path / "mine.py"
    path.write_text(INNER.format(line=f"{line}; SEEN.append(text)"))
    function = FunctionSource(str(path)).load()
    assert [function("", text, "") for text in ("x", "y")] == [4.0, 5.0]
    assert not [name for name in sys.modules if name.partition(".")[0] == "verl"]
    scorer = make_scorer(
        [_with(rule(tmp_path, "other", "return 0.0"), load_dropin(path, "mine"))], None
    )
    try:
        batch = await scorer.score(rows("x"))
    finally:
        await scorer.close()
    assert batch.scores.results[0][0].value == 4.0


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from verl.utils.hdfs_io import copy", "hdfs_io"),
        ("from verl.utils.reward_score import nothing_of_ours", "nothing_of_ours"),
        ("from verl import DataProto", "DataProto"),
        ("import verl.utils.reward_score.nothing_of_ours as n", "nothing_of_ours"),
    ],
)
def test_an_import_of_verl_inside_a_function_is_refused_before_it_runs(
    tmp_path: Path, line: str, name: str
):
    path = tmp_path / "mine.py"
    path.write_text(INNER.format(line=line))
    for load in (lambda: load_dropin(path, "mine"), FunctionSource(str(path)).load):
        with pytest.raises(RewardFunctionError) as caught:
            load()
        assert f"{path}:7: {line} will raise ModuleNotFoundError" in str(caught.value)
        assert f"there is no {name}.py beside the file" in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        "if text == 'never':\n        from verl.utils.hdfs_io import copy\n    WORDS = SEEN = 'a'",
        "try:\n        from verl import DataProto\n    except ImportError:\n"
        "        WORDS = SEEN = 'a'",
    ],
)
def test_an_import_that_need_not_run_waits(tmp_path: Path, body: str):
    path = tmp_path / "mine.py"
    path.write_text(INNER.format(line=body) + "\ndef unused():\n    from verl import DataProto\n")
    assert FunctionSource(str(path)).load()("", "x", "") == 2.0


def test_an_import_of_verl_that_fails_in_a_call_costs_the_row_and_is_explained(tmp_path: Path):
    path = tmp_path / "mine.py"
    body = "if text == 'bad':\n        from verl.utils.hdfs_io import copy\n    WORDS = SEEN = 'a'"
    path.write_text(INNER.format(line=body))
    function = FunctionSource(str(path)).load()
    with pytest.raises(ModuleNotFoundError) as caught:
        function("", "bad", "")
    sentence = describe_exception(caught.value, str(path))
    assert "there is no hdfs_io.py beside the file" in sentence
    assert sentence.endswith(f"({path}:8 in helper: from verl.utils.hdfs_io import copy)")


def test_another_missing_package_is_not_about_verl(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text("import no_such_package_of_anybody\n" + RULE)
    with pytest.raises(RewardFunctionError) as caught:
        load_module(path)
    assert "verl" not in str(caught.value).replace(str(path), "")


def test_the_working_directory_is_importable_as_under_python_m(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "own_package_of_mine.py").write_text("WORDS = ['a']\n" + RULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))]
    )
    assert FunctionSource("own_package_of_mine").load()("", "", "") == 1.0


def test_a_file_of_the_working_directory_imports_its_siblings_by_the_names_of_verl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "package_beside_words.py").write_text(
        "from verl.utils.reward_score.words_of_mine import WORDS\n" + RULE
    )
    (tmp_path / "words_of_mine.py").write_text("WORDS = ['a', 'b']\n")
    monkeypatch.chdir(tmp_path)
    assert FunctionSource("package_beside_words").load()("", "", "") == 2.0


def test_a_model_rewards_functions_import_nothing_of_verl_that_is_not_beside_them(tmp_path: Path):
    path = tmp_path / "judge.py"
    path.write_text(
        "def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):\n"
        "    from verl.utils.hdfs_io import copy\n"
        "    return text_responses\n\n"
        "def rm_postprocess(results):\n"
        "    return results\n"
    )
    with pytest.raises(RewardFunctionError, match=r"no hdfs_io\.py beside the file"):
        load_dropin(path, "judge")


def test_a_file_never_shadows_a_package(tmp_path: Path):
    (tmp_path / "hashlib.py").write_text("raise RuntimeError('the wrong one')\n")
    path = tmp_path / "mine.py"
    path.write_text("import hashlib\nWORDS = [hashlib.sha256]\n" + RULE)
    (found,) = load_module(path).WORDS
    assert found is hashlib.sha256


@pytest.mark.parametrize("named", ["drop-in", "file", "module"])
def test_the_hash_of_a_drop_in_follows_its_siblings(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "deeper.py").write_text("A = 1\n")
    (tmp_path / "sibling.py").write_text("from deeper import A\nWORDS = []\n")
    path = tmp_path / "named_in_three_ways.py"
    path.write_text("from sibling import WORDS\n" + RULE + "\nrate = compute_score\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def code_hash() -> str:
        if named == "drop-in":
            return load_dropin(path, "mine").code_hash
        target = str(path) if named == "file" else path.stem
        return function_dropin(FunctionSource(target, "rate"), "mine").code_hash

    first = code_hash()
    (tmp_path / "unrelated.py").write_text("B = 1\n")
    assert code_hash() == first
    (tmp_path / "deeper.py").write_text("A = 2\n")
    assert code_hash() != first


def test_each_folder_has_its_own_sibling(tmp_path: Path):
    for folder, word in (("one", "a"), ("two", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "sibling_of_both.py").write_text(f"WORDS = ['{word}']\n")
        (tmp_path / folder / "mine.py").write_text("from sibling_of_both import WORDS\n" + RULE)
    assert load_module(tmp_path / "one" / "mine.py").WORDS == ["a"]
    assert load_module(tmp_path / "two" / "mine.py").WORDS == ["b"]


@pytest.mark.parametrize("code", ["def compute_score(:\n", "x = (\n"])
def test_a_syntax_error_is_named_with_its_line(tmp_path: Path, code: str):
    path = tmp_path / "mine.py"
    path.write_text("WORDS = []\n" + code)
    with pytest.raises(RewardFunctionError, match=rf"SyntaxError: .* \({path}:\d\)"):
        load_module(path)


async def test_a_function_that_prints_is_no_worse_for_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    result: ScoreResult = (
        await scored([rule(tmp_path, "loud", "print('heard'); return 1.0")], rows("x"))
    ).scores.results[0][0]
    assert (result.value, items("x")[0].response) == (1.0, "x")
    assert "heard" not in capfd.readouterr().out


async def test_a_slow_function_is_a_timeout_of_its_row(tmp_path: Path):
    body = "import time; time.sleep(600 if solution_str == 'slow' else 0); return 1.0"
    column = (
        await scored([rule(tmp_path, "sleepy", body, timeout_s=expires(1.0))], rows("x", "slow"))
    ).scores.results[0]
    assert [result.status for result in column] == ["ok", "timeout"]


def test_every_part_of_an_import_may_be_a_file_beside_it():
    code = "import helper\nfrom pkg.tools import f as g\nfrom . import near\n"
    assert imports.imported_names(code) == {"helper", "pkg", "tools", "f", "near"}
    assert imports.imported_names("import (") == set()


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("import verl.utils.reward_score.gsm8k as g, os", ["verl.utils.reward_score.gsm8k"]),
        ("from verl.utils.reward_score import gsm8k", ["verl.utils.reward_score.gsm8k"]),
        ("from verl.trainer.ppo import core", ["verl.trainer.ppo"]),
        ("from .verl import x", []),
        ("from os import path", []),
    ],
)
def test_full_names_of_what_a_statement_takes_from_verl(statement: str, names: list[str]):
    (node,) = ast.parse(statement).body
    assert isinstance(node, ast.Import | ast.ImportFrom)
    assert names_of_verl.names_from_verl(node) == names
