"""Halves of letters in the values of rows."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.data.surrogates import replaced

HALF = "\ud83d"


@pytest.mark.parametrize(
    ("value", "readable"),
    [
        (f"a{HALF}b", "a\ufffdb"),
        ("\udfff\ud800", "\ufffd\ufffd"),
        ((1, [HALF, None]), (1, ["\ufffd", None])),
        ({"a": {"b": (HALF,)}}, {"a": {"b": ("\ufffd",)}}),
        ({HALF: None, "c": 1}, {"\ufffd": None, "c": 1}),
    ],
)
def test_half_a_letter_is_one_character(value: Any, readable: Any) -> None:
    assert replaced(value) == readable


@pytest.mark.parametrize(
    "value", ["", "abc", "é 漢字 🙂", 1.5, None, [], {"a": [1, {"b": "é"}], "c": (None, "x")}]
)
def test_what_is_whole_is_returned_itself(value: Any) -> None:
    assert replaced(value) is value
