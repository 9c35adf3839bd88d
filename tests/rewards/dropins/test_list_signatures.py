"""Columns of rules that take lists, in the forms of other trainers."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.rewards.dropins.list_signatures import (
    InLists,
    MisfitError,
    checked_entries,
    log,
    log_openrlhf,
    openrlhf_columns,
    row_columns,
    verl_columns,
)
from rmrl.rewards.dropins.signatures import rule_form


def offered(response: str, **entries: Any) -> dict[str, Any]:
    return {
        "data_source": "math",
        "solution_str": response,
        "ground_truth": "4",
        "extra_info": {"level": 2},
        "messages": [{"role": "user", "content": "2 + 2?"}],
        **entries,
    }


def test_verl_gets_four_lists_of_equal_length():
    assert verl_columns([offered("4"), offered("5")]) == {
        "data_sources": ["math", "math"],
        "solution_strs": ["4", "5"],
        "ground_truths": ["4", "4"],
        "extra_infos": [{"level": 2}, {"level": 2}],
    }


def test_a_query_of_openrlhf_is_the_prompt_with_the_response_behind_it():
    turns = [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2?"}]
    assert openrlhf_columns([offered("4"), offered("5", messages=turns)]) == {
        "queries": ["2 + 2?4", "system: Add.\n\nuser: 2 + 2?5"],
        "prompts": ["2 + 2?", "system: Add.\n\nuser: 2 + 2?"],
        "labels": ["4", "4"],
    }


def test_the_reference_has_three_names_and_extra_info_takes_precedence():
    columns = row_columns(offered("4", extra_info={"answer": "four", "level": 2}))
    assert (columns["ground_truth"], columns["solution"]) == ("4", "4")
    assert (columns["answer"], columns["level"]) == ("four", 2)
    assert "solution_str" not in columns


def test_a_row_without_a_reference_has_none_of_its_columns():
    def reward(completions: list[Any], solution: list[str]) -> list[float]:
        return [float(solution[0] == completions[0])]

    form = rule_form(reward, "here")
    assert isinstance(form, InLists)
    with pytest.raises(MisfitError, match="needs solution, and this row has no reference answer"):
        form.call_group([{**offered("4", plain_text=True), "ground_truth": None}])
    row = offered("4", plain_text=True, extra_info={"solution": "4"}) | {"ground_truth": None}
    assert form.call_group([row]) == [1.0]


def test_a_rule_that_takes_any_column_gets_no_tokens_and_no_logs():
    names: list[str] = []

    def reward(completions: list[Any], **columns: Any) -> list[float]:
        names.extend(columns)
        return [1.0] * len(completions)

    form = rule_form(reward, "here")
    assert isinstance(form, InLists)
    rows = [offered("4", plain_text=False, completion_ids=[7, 8])]
    assert form.call_group(rows) == [1.0]
    assert {"prompts", "answer", "level"} <= set(names)
    assert not {"completion_ids", "log_extra", "log_metric"} & set(names)


def test_a_completion_is_a_turn_of_the_assistant_where_the_prompt_is_a_conversation():
    received: list[Any] = []

    def reward(prompts: list[Any], completions: list[Any]) -> list[float]:
        received.append((prompts[0], completions[0]))
        return [1.0]

    form = rule_form(reward, "here")
    assert isinstance(form, InLists)
    form.call_group([offered("4", plain_text=False)])
    form.call_group([offered("4", plain_text=True)])
    turns = [{"role": "user", "content": "2 + 2?"}]
    assert received == [(turns, [{"role": "assistant", "content": "4"}]), ("2 + 2?", "4")]


def test_a_column_is_written_row_by_row_or_repeated():
    logged: list[dict[str, Any]] = [{}, {}]
    log(logged, "length", [3, 5], per_row=True)
    log(logged, "mean", [3, 5], per_row=False)
    assert logged == [{"length": 3, "mean": [3, 5]}, {"length": 5, "mean": [3, 5]}]


def test_scores_and_extra_logs_of_openrlhf_become_columns():
    logged: list[dict[str, Any]] = [{}, {}]
    returned = {"rewards": [1, 0], "scores": [0.5, 0.25], "extra_logs": {"kl": 0.1, "none": None}}
    log_openrlhf(returned, logged)
    assert logged == [{"scores": 0.5, "kl": 0.1}, {"scores": 0.25, "kl": 0.1}]


def test_entries_are_those_of_a_list_of_the_right_length():
    assert checked_entries([1, None], 2) == [1, None]
    assert checked_entries((1.0,), 1) == [1.0]
    with pytest.raises(MisfitError, match="returned 1 rewards for 2 completions"):
        checked_entries([1], 2)
    with pytest.raises(MisfitError, match="a list with one reward per completion"):
        checked_entries("12", 2)
