"""Steps of a response: cut, found again, and their last tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmrl.rewards.kinds.process.steps import (
    cut_steps,
    last_tokens,
    locate_steps,
    step_ends,
    tokens_of_parts,
)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a\n\nb\n\nc", ["a\n\n", "b\n\n", "c"]),
        ("a\n\nb\n\n", ["a\n\n", "b\n\n"]),
        ("a\n\n\n\nb", ["a\n\n\n\n", "b"]),  # an empty part belongs to the one before
        ("\n\na\n\nb", ["\n\na\n\n", "b"]),  # at the start, to the one after
        ("a\n\n \n\nb", ["a\n\n \n\n", "b"]),
        ("a\nb", ["a\nb"]),
        ("", [""]),
        ("\n\n", ["\n\n"]),
    ],
)
def test_each_step_keeps_its_separator(text: str, steps: list[str]) -> None:
    assert cut_steps(text, "\n\n") == steps


def test_without_a_separator_the_text_is_one_step() -> None:
    assert cut_steps("a\n\nb", "") == ["a\n\nb"]


@given(st.text(alphabet="ab\n ", max_size=30), st.sampled_from(["\n", "\n\n", "a", " "]))
def test_steps_make_up_the_text(text: str, separator: str) -> None:
    steps = cut_steps(text, separator)
    assert "".join(steps) == text
    assert all(steps) or text == ""
    assert step_ends(steps)[-1] == len(text)


def test_steps_are_found_in_their_order() -> None:
    assert locate_steps(["one.", "two."], "one.\n\ntwo. two.") == [4, 10]
    assert locate_steps([" two.\n", "two."], "one.\n\ntwo. two.") == [10, 15]
    assert locate_steps(["two.", "one."], "one.\n\ntwo.") is None


def test_the_last_token_before_a_place() -> None:
    #           <s>     "ab"    "\n\n" trimmed  "cd"   </s>
    offsets = [(0, 0), (0, 2), (4, 4), (4, 6), (0, 0)]
    assert last_tokens([2, 4, 6], offsets) == [1, 2, 3]
    assert last_tokens([1], offsets) == [1]  # the token that holds the place
    assert last_tokens([0], offsets) == [0]  # before all text: the begin mark
    assert last_tokens([0], [(0, 2)]) == [-1]


def test_the_last_tokens_of_parts(tokenizer: Any) -> None:
    ids, last = tokens_of_parts(["Q: ", "ab", "", "cde"], tokenizer, special=False)
    assert tokenizer.decode(ids) == "Q: abcde"
    assert last == [2, 4, 4, 7]  # one token a character


class _Slow:
    """A tokenizer that does not say where its tokens stand."""

    is_fast = False
    bos_token_id = 7

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [ord(character) for character in text]}


def test_a_slow_tokenizer_is_called_part_by_part() -> None:
    assert tokens_of_parts(["a", "bc"], _Slow(), special=False) == ([97, 98, 99], [0, 2])
    assert tokens_of_parts(["a", "bc"], _Slow(), special=True) == ([7, 97, 98, 99], [1, 3])


@pytest.mark.parametrize("special", [True, False])
def test_byte_level_tokens_end_where_the_steps_end(smollm2: Path, special: bool) -> None:
    """Decoding up to the token found gives the text up to the step's end, whatever the tokenizer
    trims from its offsets."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    text = "First, 2 + 2 = 4.\n\nThen   é and 漢字 🙂.\n\n\n\n  So the answer is 4\n\n"
    parts = ["user\nWhat?\n", *cut_steps(text, "\n\n"), "<|im_end|>\n"]
    ids, last = tokens_of_parts(parts, tokenizer, special=special)
    for token, end in zip(last[1:-1], step_ends(parts)[1:-1], strict=True):
        seen = tokenizer.decode(ids[: token + 1])
        assert len(seen) >= end
        assert len(tokenizer.decode(ids[:token])) < end
        assert seen.startswith("".join(parts)[:end])
