"""What is known of the responses besides their scores."""

from __future__ import annotations

from rmrl.rewards.response_facts import Rows
from rmrl.types import ScoreItem


def item(group: int, tokens: int, reason: str, source: str) -> ScoreItem:
    return ScoreItem(
        prompt_id="p",
        messages=[],
        response="r",
        rm_prompt="",
        data_source=source,
        finish_reason=reason,
        response_tokens=tokens,
        group=group,
    )


def test_rows_of_items_and_a_selection():
    rows = Rows.of(
        [item(0, 5, "stop", "math"), item(1, 9, "length", "chat"), item(1, 2, "stop", "chat")]
    )
    assert len(rows) == 3
    picked = rows.select([2, 1, 1])
    assert picked.group_ids_B.tolist() == [1, 1, 1]
    assert picked.lengths_B.tolist() == [2, 9, 9]
    assert picked.truncated_B.tolist() == [False, True, True]
    assert picked.sources == ("chat", "chat", "chat")


def test_no_rows():
    rows = Rows.of([])
    assert len(rows) == len(rows.select([])) == 0
    assert (rows.group_ids_B.dtype, rows.lengths_B.dtype, rows.truncated_B.dtype) == (
        "int64",
        "int64",
        "bool",
    )


def test_groups_of_joined_batches_stay_apart():
    first = Rows.of([item(0, 5, "stop", "math"), item(2, 9, "length", "chat")])
    second = Rows.of([item(0, 1, "stop", "code"), item(0, 2, "stop", "code")])
    rows = Rows.joined([first, Rows.of([]), second])
    assert rows.group_ids_B.tolist() == [0, 2, 3, 3]
    assert rows.lengths_B.tolist() == [5, 9, 1, 2]
    assert rows.truncated_B.tolist() == [False, True, False, False]
    assert rows.sources == ("math", "chat", "code", "code")
