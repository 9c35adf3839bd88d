"""Passages cut to some of their tokens; without a tokenizer a token is a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmrl.rewards.kinds.shared.token_pieces import Pieces, kept_numbers
from tests.rewards.parts import chat_tokenizer


def test_the_tokens_of_all_texts_of_a_passage():
    pieces = Pieces.of(["a bc", "d"], None)
    assert pieces.spans == [(0, 0, 1), (0, 2, 4), (1, 0, 1)]


def test_special_tokens_are_no_part_of_a_text():
    def tokenizer(text: str, *, add_special_tokens: bool, **_: Any) -> dict[str, Any]:
        special = [(0, 0)] if add_special_tokens else []
        return {"offset_mapping": [*special, (0, len(text))]}

    tokenizer.is_fast = True  # type: ignore[attr-defined]
    assert Pieces.of(["a bc"], tokenizer).spans == [(0, 0, 4)]


@pytest.mark.parametrize(
    ("how", "cut"),
    [
        ("truncate_right", ["one two [cut]", "[cut]"]),
        ("truncate_left", ["[cut]", "[cut] five six"]),
        ("truncate_middle", ["one [cut]", "[cut] six"]),
    ],
)
def test_two_of_six_tokens_remain(how: str, cut: list[str]):
    pieces = Pieces.of(["one two three", "four five six"], None)
    assert [text.replace("  ", " ") for text in pieces.cut(2, how=how, mark="[cut]")] == cut


def test_a_text_that_keeps_all_tokens_has_no_mark():
    pieces = Pieces.of(["one", "two three"], None)
    assert pieces.cut(3, how="truncate_right", mark="[cut]") == ["one", "two three"]
    assert pieces.cut(2, how="truncate_right", mark="[cut]") == ["one", "two [cut]"]
    assert pieces.cut(2, how="truncate_right", mark="") == ["one", "two"]


def test_kept_numbers():
    assert kept_numbers(5, 3, how="truncate_right") == [0, 1, 2]
    assert kept_numbers(5, 3, how="truncate_left") == [2, 3, 4]
    assert kept_numbers(5, 3, how="truncate_middle") == [0, 3, 4]


def test_half_a_letter_does_not_end_the_cutting(tmp_path: Path):
    tokenizer = chat_tokenizer(tmp_path)
    pieces = Pieces.of(["a\ud83d b"], tokenizer)
    assert pieces.texts == ["a\ud83d b"]
    # Characters are tokens; the last one is in its place.
    assert pieces.spans[-1] == (0, 3, 4)
