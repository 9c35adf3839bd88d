"""Mathematical equality: hand-made pairs, and math-verify's own table where it is present."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.answers import math_equal

DATA = Path(__file__).parents[4] / "shared" / "data" / "math" / "math_verify_cases.jsonl"
FEW = [
    {
        "id": "a",
        "gold": "$10/9$",
        "pred": "Answer $ \\frac{1}{2} \\$ = \\frac{10}{9} $",
        "expected": True,
        "options": {},
    },
    {"id": "b", "gold": "$(0,9)$", "pred": "$[0,9)$", "expected": False, "options": {}},
    {"id": "c", "gold": "1,22", "pred": "1.22", "expected": True, "options": {}},
    {
        "id": "d",
        "gold": "$x > 5$",
        "pred": "Therefore $x \\gt 5$ is the solution.",
        "expected": True,
        "options": {},
    },
]
NEWLINES = {"test_all.test_latex_notation.5", "test_all.test_latex_notation.6"}
"""The table expects "$ (newline) 9 (newline) $" to be unreadable; read as 9 it is equal to the
reference."""


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        ("so it is $\\boxed{\\frac{1}{2}}$.", "0.5", 1.0),
        ("so it is $\\boxed{0.5}$.", "\\frac12", 1.0),
        ("$\\boxed{(x+1)^2}$", "x^2+2x+1", 1.0),
        ("$\\boxed{(x+1)^2}$", "x^2+2x", 0.0),
        ("a loss of $\\boxed{28\\%}$", "28", 1.0),
        ("with $x = 3$ it is $\\boxed{7}$", "3", 0.0),
        ("The roots are $\\boxed{3, 5, 7}.$", "3, 5, 7", 1.0),
        ("$\\boxed{7}$", "3, 5, 7", 0.0),
        ("worth \\boxed{32348}", "\\$32,\\!348", 1.0),
        ("I do not know.", "3", 0.0),
    ],
)
def test_score(response, gold, expected):
    assert math_equal.score(response, gold) == expected


def test_a_reference_that_is_no_mathematics_is_no_verdict():
    with pytest.raises(ValueError, match="cannot be read as mathematics"):
        math_equal.score("$3$", "")


def test_a_missing_reference_is_no_verdict_and_no_product_of_letters():
    # As text it would be the product N*o*n*e, to which 3 is not equal.
    with pytest.raises(ValueError, match="the row has no reference answer"):
        math_equal.score("$3$", None)


def differing(rows: list[dict[str, Any]]) -> set[str]:
    """Ids of the rows in which math_equal does not say what the table expects."""
    wrong = set()
    for row in rows:
        options = dict(row["options"])
        rounding = options.pop("precision", 6)
        score = math_equal.score(row["pred"], row["gold"], float_rounding=rounding, **options)
        if score != float(row["expected"]):
            wrong.add(row["id"])
    return wrong


def table(every: int = 1) -> list[dict[str, Any]]:
    if not DATA.exists():
        return FEW
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()[::every]]


def test_agrees_with_an_eighth_of_the_table_of_math_verify_in_all_but_two_rows():
    rows = table(every=8)
    assert differing(rows) == NEWLINES & {row["id"] for row in rows}
