from __future__ import annotations

import ast
import math
import operator
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from rmrl.config.schema import DataConfig
from rmrl.data.dataset import iterate_rows
from tests.scripts import load_script

pytest.importorskip("reasoning_gym")
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "data_preprocess" / "arithmetic.py"
TASKS = ["basic_arithmetic", "chain_sum", "gcd", "lcm", "products", "simple_equations"]


@pytest.fixture(scope="module")
def arithmetic():
    return load_script(SCRIPT)


def load(path: Path):
    return list(iterate_rows(DataConfig(train_files=str(path)), split="train"))


OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def value_of(node: ast.AST) -> Fraction:
    """Exact value of a sum, worked out apart from the generator."""
    if isinstance(node, ast.Constant):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](value_of(node.operand))
    return OPERATORS[type(node.op)](value_of(node.left), value_of(node.right))


def evaluate(expression: str) -> Fraction:
    return value_of(ast.parse(expression.strip(), mode="eval").body)


def right(task: str, question: str, answer: str) -> bool:
    numbers = [int(n) for n in re.findall(r"\d+", question)]
    if task == "gcd":
        return math.gcd(*numbers) == int(answer)
    if task == "lcm":
        return math.lcm(*numbers) == int(answer)
    if task == "simple_equations":
        left, equals = re.search(r"([-+*0-9a-z ]+)=([-0-9 ]+)\.$", question.split(":")[1]).groups()
        return evaluate(re.sub(r"[a-z]", f"({answer})", left)) == evaluate(equals)
    return evaluate(question.removeprefix("What is ").removesuffix("?")) == int(answer)


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
@pytest.mark.parametrize("task", TASKS)
def test_every_answer_is_right(arithmetic, tmp_path, task: str, difficulty: str):
    args = [
        "--out",
        str(tmp_path),
        "--train",
        "40",
        "--test",
        "10",
        "--tasks",
        task,
        "--difficulty",
        difficulty,
    ]
    assert arithmetic.main(args) == 0
    for row in load(tmp_path / "train.parquet"):
        assert row.data_source == f"arithmetic/{task}"
        assert right(task, row.rm_prompts[""], row.ground_truth), row


def test_the_table_is_what_the_tests_know(arithmetic):
    assert sorted(arithmetic.TASKS) == TASKS
    assert all(set(levels) == set(arithmetic.DIFFICULTIES) for levels in arithmetic.TASKS.values())


def test_splits_are_disjoint_and_without_repeats(arithmetic, tmp_path):
    assert arithmetic.main(["--out", str(tmp_path), "--train", "1500", "--test", "300"]) == 0
    sums = {
        s: [re.sub(r"\s", "", r.rm_prompts[""]) for r in load(tmp_path / f"{s}.parquet")]
        for s in ("train", "test")
    }
    assert (len(sums["train"]), len(sums["test"])) == (1500, 300)
    assert len(set(sums["train"])) == 1500
    assert not set(sums["train"]) & set(sums["test"])


def test_splits_are_equally_hard(arithmetic, tmp_path):
    arithmetic.main(["--out", str(tmp_path), "--train", "1500", "--test", "500"])
    sizes = [
        [len(r.rm_prompts[""]) for r in load(tmp_path / f"{s}.parquet")] for s in ("train", "test")
    ]
    means = [sum(s) / len(s) for s in sizes]
    assert abs(means[0] - means[1]) < 0.2  # of about 16 characters


def test_same_seed_same_rows(arithmetic, tmp_path):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        arithmetic.main(
            ["--out", str(tmp_path / name), "--train", "20", "--test", "5", "--seed", seed]
        )
    a, b, c = ([r.messages for r in load(tmp_path / n / "train.parquet")] for n in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize(
    ("style", "ending"),
    [
        ("number", "Answer with the number only."),
        ("gsm8k", 'final answer after "####".'),
        ("boxed", "answer within \\boxed{}."),
    ],
)
def test_styles(arithmetic, tmp_path, style: str, ending: str):
    arithmetic.main(
        ["--out", str(tmp_path), "--train", "6", "--test", "1", "--style", style, "--tasks", *TASKS]
    )
    rows = load(tmp_path / "train.parquet")
    assert all(r.messages[0]["content"].endswith(ending) for r in rows)
    assert all(r.messages[0]["content"].startswith(r.rm_prompts[""] + " ") for r in rows)
    assert not any("final answer." in r.rm_prompts[""] for r in rows)


def test_the_same_sum_is_one_problem(arithmetic):
    def item(**metadata):
        return {"question": "Solve for b: 2*b = 4", "answer": "2", "metadata": metadata}

    problem = arithmetic.as_problem
    assert (
        problem("chain_sum", item(expression="3 + 4")).key
        == problem("basic_arithmetic", item(expression="3+4")).key
    )
    assert problem("gcd", item(numbers=[8, 6])).key == problem("gcd", item(numbers=[6, 8])).key
    assert problem("gcd", item(numbers=[8, 6])).key != problem("lcm", item(numbers=[8, 6])).key
    assert (
        problem("simple_equations", item(equation="2*b = 4")).key
        == problem("simple_equations", item(equation="2*q = 4")).key
    )


def test_more_than_there_are(arithmetic, tmp_path, capsys):
    assert (
        arithmetic.main(
            ["--out", str(tmp_path), "--tasks", "lcm", "--train", "4000", "--test", "10"]
        )
        == 2
    )
    message = capsys.readouterr().err
    assert re.search(
        r"--tasks lcm --difficulty easy: only \d+ different problems exist, and --train and --test"
        r" need 4010",
        message,
    )
    assert not list(tmp_path.iterdir())


def test_existing_files_are_left_alone(arithmetic, tmp_path, capsys):
    args = ["--out", str(tmp_path), "--train", "2", "--test", "1"]
    assert arithmetic.main(args) == 0
    assert arithmetic.main(args) == 6
    assert "exists already" in capsys.readouterr().err
    assert arithmetic.main([*args, "--overwrite"]) == 0


def test_no_rows_asked_for(arithmetic, tmp_path, capsys):
    assert arithmetic.main(["--out", str(tmp_path), "--train", "0"]) == 2
    assert "--train 0 --test 200; need at least 1 of each" in capsys.readouterr().err


def test_help_from_the_command_line():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert "--difficulty" in done.stdout
