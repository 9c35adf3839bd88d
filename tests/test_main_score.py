"""`python -m rmrl.main_score` as a user runs it: mistakes are sentences, rules start neither Ray
nor an engine, endings are clean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.inputs import read_lines

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Case:
    """Overrides on top of a command line that works, the exit code, and what must be said."""

    overrides: dict[str, str]
    code: int
    words: tuple[str, ...]


CASES = {
    "works": Case(
        {"out": "{tmp}/scored.parquet"}, 0, ("wrote {tmp}/scored.parquet: 4 rows, 4 responses",)
    ),
    "works in csv": Case({"out": "{tmp}/scored.csv"}, 0, ("wrote {tmp}/scored.csv",)),
    "works in json lines": Case({"out": "{tmp}/scored.jsonl"}, 0, ("wrote {tmp}/scored.jsonl",)),
    "older names": Case(
        {
            "reward.models": "",
            "custom_reward_function.path": "{tmp}/mine.py",
            "out": "{tmp}/older.jsonl",
        },
        0,
        ("wrote {tmp}/older.jsonl",),
    ),
    "there already": Case(
        {"out": "{tmp}/there.jsonl"}, 6, ("there.jsonl exists already", "overwrite=true")
    ),
    "suffix": Case(
        {"out": "{tmp}/scored.xlsx"}, 2, ("need a file that ends in .parquet, .jsonl, .csv",)
    ),
    "no out": Case({"out": ""}, 2, ("out is empty",)),
    "unknown keys": Case(
        {"reward.modls": "[a]", "data.respons_key": "x"},
        2,
        ("2 problems", "did you mean 'models'", "did you mean 'response_key'"),
    ),
    "reward name": Case({"reward.models": "[gsm8]"}, 2, ("did you mean 'gsm8k'",)),
    "weights": Case({"reward.weights": "[1,2]"}, 2, ("reward.weights has 2 values for 1 model",)),
    "no file": Case({"data.files": "{tmp}/none.parquet"}, 6, ("none.parquet does not exist",)),
    "empty file": Case({"data.files": "{tmp}/empty.jsonl"}, 6, ("empty.jsonl", "saw no rows")),
    "no response": Case(
        {"data.response_key": "answer"},
        6,
        ("only the columns prompt, response", "data.columns.response="),
    ),
    "null response": Case(
        {"data.files": "{tmp}/null.jsonl"}, 6, ("row 1 (line 2), column 'response': saw None",)
    ),
    "mixed types": Case(
        {"data.files": "{tmp}/mixed.jsonl"}, 6, ("column 'extra'", "out=....jsonl")
    ),
    "too many missing": Case(
        {"reward.models": "[silent]", "out": "{tmp}/silent.jsonl", "over_budget": "fail"},
        3,
        (
            "wrote {tmp}/silent.jsonl: 4 rows",
            "silent  unparseable  data",
            "4 of 4   100.0%",
            (
                "MissingVerdictsError: more verdicts are missing than allowed; all rows are in"
                " {tmp}/silent.jsonl"
            ),
            "reward.max_missing=0.2 allows 20%",
        ),
    ),
    "too many missing, warned": Case(
        {"reward.models": "[fives]", "out": "{tmp}/warned.jsonl"},
        0,
        ("fives   unparseable  data", "all rows are in {tmp}/warned.jsonl"),
    ),
    "all missing": Case(
        {"reward.models": "[silent]", "out": "{tmp}/none.jsonl"},
        3,
        ("no response has a verdict of silent: correct the reward",),
    ),
    "group key": Case(
        {"data.group_key": "[pair]"}, 6, ("need the column 'pair' of data.group_key",)
    ),
    "columns": Case({"columns": "[told]"}, 2, ("columns=['told']: give some of rendered, raw",)),
}

RUNNER = """
import contextlib, io, json, sys
from rmrl.main_score import main
done = {}
for name, arguments in json.load(sys.stdin).items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = main(arguments)
    done[name] = {"code": code, "said": said.getvalue(), "heavy": [m for m in ("ray", "vllm", "torch", "transformers") if m in sys.modules]}
print("RESULT" + json.dumps(done))
"""


def rows(*changes: dict[str, Any]) -> str:
    base = {"prompt": "2 + 2?", "response": "#### 4", "reward_model": {"ground_truth": "4"}}
    return "".join(json.dumps({**base, **change}) + "\n" for change in changes)


def arguments(tmp: Path, changed: dict[str, str]) -> list[str]:
    keys = {
        "data.files": "{tmp}/rows.jsonl",
        "out": "{tmp}/never.parquet",
        "reward.models": "[gsm8k]",
        "reward.rule_workers": "1",
        "reward.functions_dir": f"[{{tmp}}/functions,{REPOSITORY}/reward_functions]",
        "trainer.device": "cpu",
        **changed,
    }
    return [f"{key}={value.replace('{tmp}', str(tmp))}" for key, value in keys.items() if value]


def write_files(tmp: Path) -> None:
    (tmp / "functions").mkdir()
    (tmp / "functions" / "silent.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n    return None\n"
    )
    (tmp / "functions" / "fives.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n"
        "    return 1.0 if '5' in solution_str else None\n"
    )
    (tmp / "mine.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n    return"
        " len(solution_str)\n"
    )
    (tmp / "rows.jsonl").write_text(rows({}, {"response": "#### 5"}, {}, {}))
    (tmp / "empty.jsonl").touch()
    (tmp / "there.jsonl").write_text("precious")
    (tmp / "null.jsonl").write_text(rows({}, {"response": None}))
    (tmp / "mixed.jsonl").write_text(rows({"extra": 1}, {"extra": "x"}))


@pytest.fixture(scope="module")
def tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("score")
    write_files(folder)
    return folder


@pytest.fixture(scope="module")
def outcomes(tmp: Path) -> dict[str, Any]:
    """Every case in one process, since imports take longer than everything else."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        cwd=tmp,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        input=json.dumps({name: arguments(tmp, case.overrides) for name, case in CASES.items()}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    result = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert result, done.stderr[-3000:]
    return json.loads(result[-1].removeprefix("RESULT"))


@pytest.mark.parametrize("name", CASES)
def test_every_ending_is_a_sentence_and_an_exit_code(
    outcomes: dict[str, Any], tmp: Path, name: str
) -> None:
    outcome, case = outcomes[name], CASES[name]
    assert outcome["code"] == case.code, outcome["said"]
    for words in case.words:
        assert words.replace("{tmp}", str(tmp)) in outcome["said"]
    assert "Traceback" not in outcome["said"]


def test_rules_need_neither_ray_nor_an_engine(outcomes: dict[str, Any]) -> None:
    assert {name: o["heavy"] for name, o in outcomes.items() if o["heavy"]} == {}


def test_only_what_was_asked_for_is_written(outcomes: dict[str, Any], tmp: Path) -> None:
    assert outcomes["works"]["code"] == 0
    assert {
        p.name for p in tmp.iterdir() if p.suffix in (".partial", ".parts") or "never" in p.name
    } == set()
    assert [row["status_silent"] for row in read_lines(tmp / "silent.jsonl")] == ["unparseable"] * 4
    assert (tmp / "there.jsonl").read_text() == "precious"
    assert [row["reward"] for row in read_lines(tmp / "scored.jsonl")] == [1.0, 0.0, 1.0, 1.0]
    assert [row["reward"] for row in read_lines(tmp / "older.jsonl")] == [6.0] * 4
