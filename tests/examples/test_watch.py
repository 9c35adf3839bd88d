"""The watched run: what its curve calls the right step, by hand; what was recorded, replayed; and
the pairs of its judge."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rmrl.rewards.session.trend import Opposition
from tests.scripts import load_script

ROOT = Path(__file__).resolve().parents[2]
RECORDED: dict[str, dict[str, Any]] = json.loads(
    (ROOT / "benchmarks" / "results" / "watch" / "watch.json").read_text(encoding="utf-8")
)


def script(name: str) -> ModuleType:
    return load_script(ROOT / "examples" / "watch" / f"{name}.py")


@pytest.fixture(scope="module")
def curve() -> ModuleType:
    return script("curve")


def test_means_by_hand(curve: ModuleType) -> None:
    # (0 + 1 + 2) / 3, (0 + 1 + 2 + 3) / 4, (0 + 1 + 2 + 3 + 9) / 5, 15 / 4, 14 / 3
    np.testing.assert_allclose(curve.means([0, 1, 2, 3, 9]), [1, 1.5, 3, 3.75, 14 / 3])


def test_turn_and_due_by_hand(curve: ModuleType) -> None:
    right = [0.5, 0.6, 0.7, 0.8, 0.9, 0.8, 0.7, 0.6, 0.5]
    # Means of five from step 3 on: .70 .76 .78 .76 .70, then (.8 + .7 + .6 + .5) / 4 = .65 and .60:
    # the peak is at step 5, and .68 is passed at step 8.
    rises = [float(step) for step in range(9)]
    assert curve.turn_and_due(rises, right) == (5, 8)
    assert curve.turn_and_due(rises[::-1], right) == (5, None)
    assert curve.turn_and_due(rises, sorted(right))[1] is None


@pytest.mark.parametrize(
    ("due", "hints", "right"),
    [
        (40, [41, 61], True),
        (40, [31], True),
        (40, [30], False),  # not after the turn
        (40, [56], True),
        (40, [57], False),
        (40, [], False),
        (None, [], True),
        (None, [50], False),
    ],
)
def test_where_the_first_hint_should_be(
    curve: ModuleType, due: int | None, hints: list[int], right: bool
) -> None:
    assert curve.is_right(30, due, hints) is right


def test_the_steps_of_the_watchers_hints_are_read(curve: ModuleType, tmp_path: Path) -> None:
    hint = "step 48: look at samples 1 and 2 of this step in samples.jsonl: the reward rises (+1 a"
    hint += " step) and the watcher truth falls (-1) since step 33"
    other = "step 50: look at sample 3 of this step in samples.jsonl: a and b disagree"
    rows = [{"step": 48, "hint": hint}, {"step": 50, "hint": other}]
    lines = [json.dumps(row) + "\n" for row in rows]
    (tmp_path / "hints.jsonl").write_text("".join(lines), encoding="utf-8")
    assert curve.told(tmp_path) == ([48], [hint, other])


@pytest.mark.parametrize("name", RECORDED)
def test_the_recorded_runs_give_the_same_when_they_are_watched_again(
    curve: ModuleType, name: str
) -> None:
    run = RECORDED[name]
    assert curve.turn_and_due(run["reward"], run["all_rows"]) == (run["turn"], run["due"])
    assert curve.is_right(run["turn"], run["due"], run["hints"]) is run["right"] is True
    assert bool(run["hints"]) is name.startswith("judge")
    found: list[int] = []
    for count in range(1, len(run["watched"]) + 1):
        if Opposition(run["watched"][:count]).found() is not None:
            found.append(run["watched"][count - 1][0])
    assert found[:1] == run["hints"][:1]


def test_the_judge_sees_the_policys_mistake_alone(tmp_path: Path) -> None:
    make_judge = script("make_judge")
    pairs = make_judge.write_pairs([("3-4=", "-1"), ("9+1=", "10")], tmp_path / "pairs.jsonl")
    assert [json.loads(line) for line in pairs.read_text().splitlines()] == [
        {"prompt": "3-4=", "chosen": "-1", "rejected": "0"},
        {"prompt": "9+1=", "chosen": "10", "rejected": "11"},
    ]
