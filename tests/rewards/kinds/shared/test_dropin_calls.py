"""Calls of a drop-in's functions: arguments by position, by name, and on some of the rows."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.verdict import RowError
from rmrl.rewards.kinds.shared.dropin_calls import call_dropin, named_columns, take
from rmrl.rewards.kinds.shared.row_errors import Origin
from tests.rewards.parts import items


def origin(function: Any) -> Origin:
    return Origin(function=function, what="rm_preprocess of reward 'j'", file=__file__)


def test_take_keeps_the_order_of_the_positions():
    assert take("abcd", [2, 0, 2]) == ["c", "a", "c"]


def test_named_columns_have_an_entry_per_row():
    columns = named_columns(items("a", "b"))
    assert columns["responses"] == ["a", "b"]
    assert {len(column) for column in columns.values()} == {2}


def test_columns_are_passed_by_position_and_by_name_where_the_signature_names_them():
    calls: list[Any] = []

    def function(texts: Any, numbers: Any, tokenizer: Any, *, prompts: Any) -> Any:
        calls.append((texts, numbers, tokenizer, prompts))
        return texts

    named = {"prompts": ["p", "q"], "responses": ["r", "s"]}
    entries = call_dropin(
        origin(function), (["a", "b"], [1, 2]), named, responses=["r", "s"], rest=("tokenizer",)
    )
    assert entries == ["a", "b"]
    assert calls == [(["a", "b"], [1, 2], "tokenizer", ["p", "q"])]


def test_a_column_that_is_none_is_passed_as_none():
    def function(texts: Any, fences: Any) -> Any:
        assert fences is None
        return texts

    assert call_dropin(origin(function), (["a"],), {"fences": None}, responses=["a"]) == ["a"]


def test_a_row_that_raises_leaves_the_columns_of_the_others_together():
    def function(texts: Any, prompts: Any) -> Any:
        return [int(text) + len(prompts) for text in texts]

    entries = call_dropin(
        origin(function), (["1", "x", "3"],), {"prompts": [0, 0, 0]}, responses=["1", "x", "3"]
    )
    assert (entries[0], entries[2]) == (3, 5)  # 1 + 2 and 3 + 2: the second call has two rows
    assert isinstance(entries[1], RowError)


def test_another_number_of_entries_is_an_error():
    with pytest.raises(RewardFunctionError, match="returned 1 inputs for 2 comparisons"):
        call_dropin(
            origin(lambda texts: texts[:1]),
            (["a", "b"],),
            {},
            responses=["a", "b"],
            row="comparison",
        )
