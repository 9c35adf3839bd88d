"""The GSM8K verifier: hand-made answers, and every recorded solution of the data set's authors
where it is present."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmrl.rewards.answers import gsm8k

DATA = Path(__file__).parents[4] / "shared" / "data" / "rollouts" / "gsm8k_openai_solutions.jsonl"
FEW = [
    {
        "response": "16 - 3 = <<16-3=13>>13 left\n13 * 2 = $<<13*2=26>>26\nA: 26",
        "gold": "18",
        "is_correct": False,
    },
    {"response": "9 * 2 = $<<9*2=18>>18\nA: 18", "gold": "18", "is_correct": True},
    {"response": "so $70,000\nA: 70,000", "gold": "70000", "is_correct": True},
    {"response": "She loses 5.\nA: -5", "gold": "5", "is_correct": False},
]


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        ("#### 18", "18", 1.0),
        ("#### 18.", "18", 1.0),
        ("#### 18.00", "18", 1.0),
        ("#### $1,234.50", "1234.5", 1.0),
        ("#### -5", "-5", 1.0),
        ("#### -$5", "-5", 1.0),
        ("#### $-5", "-5", 1.0),
        ("#### \u22125", "-5", 1.0),
        ("#### .5", "0.5", 1.0),
        ("#### 3 apples and 4 pears", "3", 1.0),
        ("#### 17\n#### 18", "18", 1.0),
        ("The answer is 18.", "18", 1.0),
        ("He pays $18 in 3 days.", "18", 0.0),
        ("He has \\boxed{18} after 3 days.", "18", 1.0),
        ("20-2 = 20 - 2", "-2", 0.0),
        ("20-2", "2", 1.0),
        ("It leaves:\n- 5 apples", "5", 1.0),
        ("f(1)2", "2", 1.0),
        ("that is \\$18", "18", 1.0),
        ("between 10 and 1,000,000!", "1000000", 1.0),
        ("none", "18", 0.0),
        ("", "18", 0.0),
        ("#### 18", "a long solution 7 * 3\n#### 18", 1.0),
        ("#### 118", "18", 0.0),
        ("#### 1.8", "18", 0.0),
    ],
)
def test_flexible(response, gold, expected):
    assert gsm8k.score(response, gold) == expected


def test_strict_takes_nothing_but_the_marked_number():
    assert gsm8k.extract_answer("The answer is 18.", "strict") is None
    assert gsm8k.extract_answer("The answer is 18. #### none", "strict") is None
    assert gsm8k.extract_answer("7 #### $1,8 rest 9", "strict") == "$1,8"
    assert gsm8k.score("The answer is 18.", "18", "strict") == 0.0


def test_a_reference_without_a_number_is_no_verdict():
    with pytest.raises(ValueError, match="'none' holds no number"):
        gsm8k.score("#### 18", "none")
    with pytest.raises(ValueError, match="the row has no reference answer"):
        gsm8k.score("#### 18", None)
    with pytest.raises(ValueError, match="use 'strict' or 'flexible'"):
        gsm8k.extract_answer("18", "loose")


def test_agrees_with_every_recorded_label():
    rows = (
        [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
        if DATA.exists()
        else FEW
    )
    wrong = [
        row["response"][-80:]
        for row in rows
        if (gsm8k.score(row["response"], row["gold"]) == 1.0) != row["is_correct"]
    ]
    assert not wrong
    assert {row["is_correct"] for row in rows} == {True, False}
