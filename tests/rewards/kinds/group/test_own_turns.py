"""A judge that compares conversations sees each response behind its own turns."""

from __future__ import annotations

from typing import Any

from rmrl.rewards.kinds.group.own_turns import with_own_turns
from rmrl.types import ScoreItem


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


FIRST = turn("user", "2 + 2?")
NEXT = turn("user", "and 3 + 3?")


def item(rm_prompt: Any, response: str, *, group: int = 0, **more: Any) -> ScoreItem:
    return ScoreItem(
        prompt_id="p", messages=(), response=response, rm_prompt=rm_prompt, group=group, **more
    )


def test_the_prompt_is_what_all_begin_with() -> None:
    items = with_own_turns(
        [
            item((FIRST, turn("assistant", "four"), NEXT), "six"),
            item((FIRST, turn("assistant", "five"), NEXT), "seven", tool_results=[(0, 3)]),
            item("2 + 2?", "4"),
            item((FIRST, NEXT), "alone", group=1),
        ]
    )
    assert [each.rm_prompt for each in items] == [(FIRST,), (FIRST,), (FIRST,), (FIRST, NEXT)]
    assert [each.response for each in items] == [
        "assistant: four\n\nuser: and 3 + 3?\n\nassistant: six",
        "assistant: five\n\nuser: and 3 + 3?\n\nassistant: seven",
        "assistant: 4",
        "alone",
    ]
    ((first, last),) = items[1].tool_results
    assert items[1].response[first:last] == "sev"


def test_responses_to_different_questions_bring_them() -> None:
    items = with_own_turns([item("a?", "A"), item("b?", "B")])
    assert [(each.rm_prompt, each.response) for each in items] == [
        ("", "user: a?\n\nassistant: A"),
        ("", "user: b?\n\nassistant: B"),
    ]


def test_equal_prompts_stay_as_they_are() -> None:
    items = [item("a?", "A"), item("a?", "B"), item([FIRST, NEXT], "C", group=1)]
    assert with_own_turns(items) == items
