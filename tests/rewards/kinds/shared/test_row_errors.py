"""A function that takes all rows at once and raises on one of them costs that row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropins.verdict import RowError
from rmrl.rewards.kinds.shared.row_errors import QUOTED_CHARACTERS, Batched, quoted
from tests.rewards.parts import JUDGE, judge, rows, scored

FILE = __file__


def entries(
    function: Callable[[list[str]], Any], texts: Sequence[str]
) -> tuple[list[Any], list[int]]:
    """What each row got, and with how many rows each call was made."""
    sizes: list[int] = []

    def call(positions: Sequence[int]) -> Any:
        sizes.append(len(positions))
        return function([texts[i] for i in positions])

    return (
        Batched(
            call=call, responses=texts, what="rm_preprocess of reward 'j'", noun="input", file=FILE
        ).rows(),
        sizes,
    )


def test_a_response_is_quoted_whole_up_to_a_length():
    whole = "x" * QUOTED_CHARACTERS
    assert quoted(whole) == f"the response '{whole}'"
    assert quoted(f"{whole}y") == f"the response '{whole}...'"


def test_what_does_not_raise_is_called_once():
    assert entries(lambda texts: [text.upper() for text in texts], ["a", "b"]) == (["A", "B"], [2])


def test_one_bad_row_costs_that_row_and_the_others_are_called_together_again():
    got, sizes = entries(lambda texts: [int(text) + len(texts) for text in texts], ["1", "x", "3"])
    assert (got[0], got[2], sizes) == (3, 5, [3, 1, 1, 1, 2])
    assert isinstance(got[1], RowError)
    assert "raised ValueError: invalid literal for int()" in got[1].detail
    assert f"{FILE}:" in got[1].detail
    assert got[1].detail.endswith("on the response 'x'")


def test_long_responses_are_quoted_by_their_beginning():
    (error,), _ = entries(lambda texts: [int(text) for text in texts], ["y" * 500])
    assert error.detail.endswith("on the response '" + "y" * 80 + "...'")


def test_a_function_that_raises_on_every_row_names_every_row():
    got, sizes = entries(lambda texts: [1 / 0 for _ in texts], ["a", "b"])
    assert [error.detail.rpartition(" ")[2] for error in got] == ["'a'", "'b'"]
    assert sizes == [2, 1, 1]


def test_a_function_that_raises_only_on_all_rows_together_has_an_error_of_its_own():
    def never_two(texts: list[str]) -> list[str]:
        if len(texts) > 1:
            raise RuntimeError("one at a time")
        return texts

    got, _ = entries(never_two, ["a", "b"])
    assert all(
        "one at a time" in e.detail
        and e.detail.endswith("on 2 responses together, and on none of them alone")
        for e in got
    )


def test_a_function_that_needs_its_whole_list_gets_what_is_left_of_it():
    """Ranks among the rows: each row alone would have the rank 0."""

    def ranks(texts: list[str]) -> list[int]:
        values = [int(text) for text in texts]
        return [sorted(values).index(value) for value in values]

    got, _ = entries(ranks, ["30", "bad", "10", "20"])
    assert [got[0], got[2], got[3]] == [2, 0, 1]


def test_a_function_that_exits_costs_its_row():
    def leave(texts: list[str]) -> list[str]:
        if "bad" in texts:
            raise SystemExit(3)
        return texts

    got, _ = entries(leave, ["a", "bad"])
    assert got[0] == "a"
    assert "raised SystemExit: 3" in got[1].detail


def test_another_number_of_entries_is_no_row_error():
    with pytest.raises(
        RewardFunctionError, match="rm_preprocess of reward 'j' returned 1 inputs for 2 responses"
    ):
        entries(lambda texts: texts[:1], ["a", "b"])


@pytest.mark.parametrize(
    ("function", "ready"),
    [
        ("rm_preprocess(text_prompts, text_responses, tgt_tokenizer, responses)", "responses"),
        ("rm_postprocess(results, responses)", "[1.0] * len(results)"),
    ],
)
async def test_a_batch_goes_on_without_the_row_a_drop_in_raised_on(
    tmp_path: Path, tokenizer: Any, function: str, ready: str
):
    """`7` is the response that the function cannot take."""
    code = (
        JUDGE
        + f"\ndef {function}:\n    assert '7' not in responses, 'a seven'\n    return {ready}\n"
    )
    batch = await scored([judge(tmp_path, code=code)], rows("3", "7", "5"), tokenizer)
    statuses = [result.status for result in batch.scores.results[0]]
    assert statuses[1] == "user_error"
    assert "user_error" not in (statuses[0], statuses[2])
    detail = batch.scores.results[0][1].detail
    assert function.partition("(")[0] in detail
    assert "a seven" in detail
    assert "judge.py:" in detail
    assert "on the response '7'" in detail


@pytest.mark.parametrize(
    ("wrong", "seen"),
    [
        ("7", "returned 7 (int) as an input; give a string, token ids"),
        ("[1, 999999]", "returned token id 999999"),
        ("[{'role': 'tool', 'content': 'x'}]", "refuses messages of the roles tool"),
        ("'half \\ud83d'", "half of a letter, a lone surrogate at 5"),
    ],
)
async def test_an_input_that_cannot_be_read_costs_its_row(
    tmp_path: Path, tokenizer: Any, wrong: str, seen: str
):
    code = JUDGE + (
        "\ndef rm_preprocess(text_prompts, text_responses, tgt_tokenizer):\n"
        f"    return [{wrong} if text == '7' else text for text in text_responses]\n"
    )
    line = code.splitlines().index(
        "def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):", 3
    )
    batch = await scored([judge(tmp_path, code=code)], rows("3", "7", "5"), tokenizer)
    results = batch.scores.results[0]
    assert results[1].status == "user_error"
    assert "user_error" not in (results[0].status, results[2].status)
    assert seen in results[1].detail
    assert results[1].detail.endswith(f"judge.py:{line + 1} in rm_preprocess, on the response '7')")
