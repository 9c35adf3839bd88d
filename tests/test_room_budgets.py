"""The rooms of the package stay within their budgets of tokens, and checks within their share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import room_budgets
from scripts.room_budgets import Sizes

FILE = '''"""Two words."""
# A comment.
x = [
    1,
]
def check(x):
    """Return it."""
    if x:
        raise ValueError(x)
def f():
    raise KeyError
'''


def test_every_room_is_within_its_budget():
    recorded = json.loads(room_budgets.RECORDED.read_text(encoding="utf-8"))
    problems = room_budgets.over_budget(room_budgets.measure(room_budgets.PACKAGE), recorded)
    advice = (
        "Look what the addition makes superfluous; where the room gained something, raise its"
        f" number in {room_budgets.RECORDED.name} and say so in the commit."
    )
    assert not problems, "\n".join([*problems, advice])


def test_docstrings_comments_and_line_ends_are_no_tokens():
    # x = [ 1 , ]   def check ( x ) :   if x :   raise ValueError ( x )   def f ( ) :   raise KeyError
    assert room_budgets.tokens_of(FILE) == 6 + 6 + 3 + 5 + 5 + 2


def test_lines_of_checks_and_of_raises_count():
    assert room_budgets.check_lines_of(FILE) == 5  # four of `check`, one raise


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("cli.py", "data/rows.py", "rewards/kinds/rule/reward.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    return tmp_path


def test_a_room_is_a_folder_and_of_rewards_each_folder(package: Path):
    assert room_budgets.measure(package).tokens == {"data": 3, "rewards/kinds": 3, "top level": 3}


def test_what_grows_is_named(package: Path):
    sizes = room_budgets.measure(package)
    recorded = {"check_share": 0.0, "tokens": {"data": 2, "top level": 3}}
    assert room_budgets.over_budget(sizes, recorded) == [
        "data: 3 tokens, at most 2",
        "rewards/kinds: 3 tokens and no budget; run --record",
    ]
    grown = Sizes(sizes.tokens, check_share=0.0512)
    assert room_budgets.over_budget(grown, recorded)[-1].startswith("5.12% of the lines")


def test_recording_lowers_and_raises_nothing():
    sizes = Sizes({"data": 5, "config": 5, "new": 5}, check_share=0.05)
    recorded = {"check_share": 0.06, "tokens": {"data": 4, "config": 9, "gone": 1}}
    after = room_budgets.lowered(sizes, recorded)
    assert after["tokens"] == {"data": 4, "config": 5, "new": 5}
    assert after["check_share"] == pytest.approx(0.05, abs=1e-4)
    assert room_budgets.over_budget(sizes, after) == ["data: 5 tokens, at most 4"]
