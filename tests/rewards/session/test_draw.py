"""The rows about which a watcher is asked."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.responses import answered
from rmrl.data.rows import Row
from rmrl.offline.response_rows import response_rows
from rmrl.rewards.session.draw import Draw
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.specs.spec import Watch
from rmrl.types import Prompt


def row(prompt: int, text: str) -> ResponseRow:
    messages = [{"role": "user", "content": f"Q{prompt}"}]
    return ResponseRow(prompt=Prompt(id=f"p:{prompt}", messages=messages, token_ids=()), text=text)


ROWS = [row(prompt, f"answer {n}") for prompt in range(250) for n in range(8)]


def drawn(draw: Draw, watch: Watch, *, whole_groups: bool = False) -> list[int]:
    """Positions of the rows that are asked about."""
    positions: list[int] = []
    for position, each in enumerate(ROWS):
        if draw.skipped(watch, each, whole_groups=whole_groups) is None:
            positions.append(position)
    return positions


def test_the_share_is_that_of_the_rows_and_every_step_has_others() -> None:
    watch = Watch(rows=0.05)
    first, second = (drawn(Draw(seed=1, step=step), watch) for step in (1, 2))
    # 2000 rows: 100 expected, with a standard deviation of sqrt(2000 * 0.05 * 0.95) = 9.7
    assert 61 <= len(first) <= 139
    assert 61 <= len(second) <= 139
    # by chance they share 2000 * 0.05^2 = 5
    assert len(set(first) & set(second)) <= 15
    assert drawn(Draw(seed=2, step=1), watch) != first
    assert drawn(Draw(seed=1, step=1), watch) == first


def test_one_row_by_hand() -> None:
    digest = hashlib.blake2b(
        b'7\x003\x00[{"content": "Q1", "role": "user"}]\x00answer 2', digest_size=8
    ).digest()
    place = int.from_bytes(digest, "big") / 2**64
    draw = Draw(seed=7, step=3)
    one = row(1, "answer 2")
    assert draw.skipped(Watch(rows=place + 1e-9), one, whole_groups=False) is None
    left_out = draw.skipped(Watch(rows=place), one, whole_groups=False)
    assert left_out is not None
    assert left_out.status == "skipped"
    assert left_out.detail == f"not asked: it watches {place:.3g} of the rows"


def test_a_smaller_share_is_a_part_of_a_larger_one() -> None:
    draw = Draw(seed=3, step=9)
    assert set(drawn(draw, Watch(rows=0.05))) < set(drawn(draw, Watch(rows=0.1)))


def test_whole_groups_are_drawn_or_left_out() -> None:
    positions = drawn(Draw(step=4), Watch(rows=0.2), whole_groups=True)
    prompts = {position // 8 for position in positions}
    assert len(positions) == 8 * len(prompts)
    assert 25 <= len(prompts) <= 75  # 50 of 250, standard deviation 6.3


def test_steps_between() -> None:
    watch = Watch(every=10)
    asked = [step for step in range(1, 31) if drawn(Draw(step=step), watch)]
    assert asked == [10, 20, 30]
    left_out = Draw(step=7).skipped(watch, ROWS[0], whole_groups=False)
    assert left_out is not None
    assert left_out.detail == "not asked: it watches every 10 steps"
    # files have no steps
    assert len(drawn(Draw(), watch)) == 2000


@pytest.mark.parametrize(
    ("rows", "validation", "count"),
    [
        ("validation", False, 0),
        ("validation", True, 2000),
        ("none", True, 0),
        ("all", False, 2000),
    ],
)
def test_outside_training(rows: str, validation: bool, count: int) -> None:
    watch = Watch(rows=0.05, every=10, validation=validation)
    assert len(drawn(Draw(step=3, rows=rows), watch)) == count  # type: ignore[arg-type]


def test_a_reward_without_watch_is_asked_about_every_row() -> None:
    assert Draw(rows="none").skipped(None, ROWS[0], whole_groups=False) is None


def flat_file(prompts: int, *, first: str = "Q") -> list[ResponseRow]:
    """Rows of a file with one response each, those of a prompt far apart."""
    rows: list[Row] = []
    for number in range(prompts * 4):
        fields = {"prompt": f"{first}{number % prompts}", "response": f"answer {number}"}
        rows.append(Row(file="f.jsonl", number=number, line=None, fields=fields, label="f"))
    return response_rows(list(answered(rows, ScoreDataConfig())))


def test_the_rows_of_a_group_in_a_flat_file_share_their_fate() -> None:
    draw = Draw()
    fates: dict[str, set[bool]] = {}
    for each in flat_file(200):
        drawn_with = draw.skipped(Watch(rows=0.3), each, whole_groups=True) is None
        fates.setdefault(str(each.prompt.messages), set()).add(drawn_with)
    assert len(fates) == 200
    assert all(len(fate) == 1 for fate in fates.values())
    # 60 of 200, standard deviation 6.5
    assert 34 <= sum(fate == {True} for fate in fates.values()) <= 86


@pytest.mark.parametrize("whole_groups", [False, True])
def test_calls_without_steps_ask_about_other_positions(whole_groups: bool) -> None:
    """An adapter numbers the rows of every call from 0."""
    positions: list[list[int]] = []
    for first in ("A", "B", "A"):
        asked: list[int] = []
        for position, each in enumerate(flat_file(100, first=first)):
            if Draw().skipped(Watch(rows=0.1), each, whole_groups=whole_groups) is None:
                asked.append(position)
        positions.append(asked)
    assert positions[0] == positions[2]
    # 40 of 400 each, of which 4 by chance at both
    assert len(set(positions[0]) & set(positions[1])) <= 16
    assert 12 <= len(positions[1]) <= 68


def test_a_row_has_its_fate_wherever_it_stands_in_its_files() -> None:
    rows = flat_file(50)
    moved = [dataclasses.replace(each.prompt, id="g.jsonl:7") for each in rows]
    for each, prompt in zip(rows, moved, strict=True):
        for whole_groups in (False, True):
            other = dataclasses.replace(each, prompt=prompt)
            fate = Draw().skipped(Watch(rows=0.5), each, whole_groups=whole_groups)
            assert Draw().skipped(Watch(rows=0.5), other, whole_groups=whole_groups) == fate
