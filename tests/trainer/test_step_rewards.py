"""Step scores land on the tokens that end the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rmrl.trainer.step_rewards import end_tokens, step_token_rewards
from rmrl.types import Prompt, Response, Step

WORDS = ["", "So", " 2", "+2", "\n\n", " is", " 4", "</s>"]


def words(ids: Sequence[int]) -> str:
    """Token ids -> text; 7 is an end token that text leaves out."""
    return "".join(WORDS[i] for i in ids if i != 7)


def octets(ids: Sequence[int]) -> str:
    """Each token a byte."""
    return bytes(ids).decode(errors="replace")


def response(ids: Sequence[int], text: str) -> Response:
    prompt = Prompt(id="p", messages=[], token_ids=(1,))
    return Response(
        prompt=prompt,
        text=text,
        token_ids=tuple(ids),
        logprobs=None,
        finish_reason="stop",
        policy_version=0,
    )


def placed(
    steps: Sequence[tuple[int, float]], ids: Sequence[int], text: str, decode=words
) -> list[float]:
    (row,) = step_token_rewards(
        [[Step(*step) for step in steps]], [response(ids, text)], decode
    ).rows()
    return row.tolist()


def test_a_step_counts_at_its_last_token_and_the_end_token_gets_none() -> None:
    # "So 2+2\n\n" are 8 characters and end with token 3; " is 4" ends with token 5, before </s>.
    assert placed([(8, 0.5), (13, -1.0)], [1, 2, 3, 4, 5, 6, 7], "So 2+2\n\n is 4") == [
        0,
        0,
        0,
        0.5,
        0,
        -1.0,
        0,
    ]


def test_a_step_that_ends_inside_a_token_counts_there() -> None:
    # "+2" is characters 5 and 6: a step of 5 characters ends inside it.
    assert placed([(5, 1.0)], [1, 2, 3, 4], "So 2+2\n\n") == [0, 0, 1.0, 0]


def test_steps_on_one_token_add_up() -> None:
    assert placed([(5, 1.0), (6, 0.25)], [1, 2, 3], "So 2+2") == [0, 0, 1.25]


def test_a_step_behind_the_text_counts_at_the_last_token() -> None:
    assert placed([(99, 1.0)], [1, 2], "So 2") == [0, 1.0]


def test_a_character_of_several_tokens_ends_with_its_last_one() -> None:
    ids = list("aé🙂b".encode())  # 1, 2, 4 and 1 bytes
    assert end_tokens(ids, [1, 2, 3, 4], octets) == [0, 2, 6, 7]
    assert placed([(2, 1.0), (3, 2.0), (4, 3.0)], ids, "aé🙂b", octets) == [0, 0, 1, 0, 0, 0, 2, 3]


def test_bytes_that_never_become_a_character_do_not_stop_the_count() -> None:
    ids = [*b"a", *[0xFF] * 100, *b"bc"]
    assert len(octets(ids)) == 103
    assert end_tokens(ids, [1, 102, 103, 104], octets) == [0, 101, 102, 102]


@pytest.mark.parametrize("shift", range(5))
def test_blocks_do_not_cut_characters(shift: int) -> None:
    text = "x" * shift + "🙂é" * 40
    ids = list(text.encode())
    expected = [len(text[:end].encode()) - 1 for end in range(1, len(text) + 1)]
    assert end_tokens(ids, range(1, len(text) + 1), octets) == expected


def test_leading_characters_that_the_text_lost_are_counted() -> None:
    assert placed([(1, 1.0)], [2, 3], "2+2") == [1.0, 0]  # decoded " 2+2", stripped by the sampler


def test_a_lost_leading_space_shifts_every_end_to_the_right() -> None:
    # " 2", "+2", " is", " 4" without its first space: "2+2" ends with token 1, "2" with token 0.
    assert placed([(3, 1.0)], [2, 3, 5, 6], "2+2 is 4") == [0, 1.0, 0, 0]
    assert placed([(1, 1.0)], [2, 3, 5, 6], "2+2 is 4") == [1.0, 0, 0, 0]


def test_rows_keep_their_lengths() -> None:
    rows = step_token_rewards(
        [[], [Step(2, 1.0)], [Step(0, 1.0)]],
        [response([1, 2], "So 2"), response([1], "So"), response([], "")],
        words,
    )
    assert rows.values.dtype == np.float32
    assert rows.lengths.tolist() == [2, 1, 0]
    assert rows.values.tolist() == [0, 0, 1.0]


def test_one_row_of_steps_for_each_response() -> None:
    with pytest.raises(ValueError, match="zip"):
        step_token_rewards([[]], [], words)


def test_time_is_linear_in_the_length() -> None:
    seen = 0

    def counting(ids: Sequence[int]) -> str:
        nonlocal seen
        seen += len(ids)
        return octets(ids)

    end_tokens(
        [0xF0] * 1000, [500, 1000], counting
    )  # the beginning of a character, again and again
    assert seen <= 20 * 1000


def test_tokens_of_a_real_tokenizer(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    text = (
        "First,  2 + 2 = 4 🙂.\n\nThen é and 漢字, "
        + "and then some more, 🧮 " * 8
        + ".\n\nSo \\(4\\)."
    )
    ids = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]

    def decode(tokens: Sequence[int]) -> str:
        return tokenizer.decode(list(tokens), skip_special_tokens=True)

    assert decode(ids) == text
    whole = [len(decode(ids[: i + 1]).rstrip("\ufffd")) for i in range(len(ids))]
    expected = [
        next(i for i, length in enumerate(whole) if length >= end)
        for end in range(1, len(text) + 1)
    ]
    assert end_tokens(ids, range(1, len(text) + 1), decode) == expected
    step_ends = [text.index("Then"), text.rindex("So"), len(text)]
    (row,) = step_token_rewards(
        [[Step(end, 1.0) for end in step_ends]], [response(ids, text)], decode
    ).rows()
    at = np.flatnonzero(row)
    assert len(at) == 3
    for token, end in zip(at, step_ends, strict=True):
        assert len(decode(ids[:token])) < end <= len(decode(ids[: token + 1]))
    assert at[-1] == len(ids) - 2
