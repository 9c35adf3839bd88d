from __future__ import annotations

import re
from array import array
from typing import Any

import pytest

from rmrl.config.schema import DataConfig
from rmrl.data import tokenize
from rmrl.data.schema import PromptRow
from rmrl.data.tokenize import encode_rows, fit_lengths, render, truncate
from rmrl.errors import ConfigError, DataError

USER_AB = [2, 5, 6, 1, 3]
"""<user> a b <end> <assistant>"""


def row(*turns: tuple[str, str], number: int = 0, plain_text: bool = False) -> PromptRow:
    return PromptRow(
        id=f"f:{number}",
        where=f"f row {number}",
        messages=tuple({"role": r, "content": c} for r, c in turns),
        plain_text=plain_text,
        rm_prompts={},
        ground_truth=None,
        data_source="",
        ability="",
        extra_info={},
    )


def has(*parts: str) -> str:
    return "(?s)" + ".*".join(re.escape(p) for p in parts)


def encoded(tokenizer: Any, *rows: PromptRow, **template_kwargs: str) -> list[list[int]]:
    return [ids.tolist() for ids in encode_rows(rows, tokenizer, template_kwargs=template_kwargs)]


def test_the_template_ends_in_the_generation_prompt(tokenizer):
    assert encoded(tokenizer, row(("user", "a b"))) == [USER_AB]


def test_a_token_takes_four_bytes(tokenizer):
    (ids,) = encode_rows([row(("user", "a b"))], tokenizer, template_kwargs={})
    assert ids.itemsize == 4


def test_same_tokens_as_the_tokenizer_itself(tokenizer):
    r = row(("system", "c"), ("user", "a b"), ("assistant", "d"), ("user", "e é"))
    expected = tokenizer.apply_chat_template(
        [dict(m) for m in r.messages], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert encoded(tokenizer, r) == [expected]


def test_a_last_assistant_turn_is_continued(tokenizer):
    # <user> a <end> <assistant> b: no <end>, no second <assistant>
    assert encoded(tokenizer, row(("user", "a"), ("assistant", "b"))) == [[2, 5, 1, 3, 6]]


def test_template_kwargs_reach_the_template(tokenizer):
    assert encoded(tokenizer, row(("user", "a")), thinking="think") == [[2, 5, 1, 3, 10]]


def test_without_a_template_plain_text_is_taken_as_it_is(tokenizer):
    tokenizer.chat_template = None
    assert encoded(tokenizer, row(("user", "a b zzz"), plain_text=True)) == [[5, 6, 0]]


def test_without_a_template_messages_are_refused(tokenizer):
    tokenizer.chat_template = None
    named = has("f row 3", "actor_rollout_ref.model.custom_chat_template")
    with pytest.raises(DataError, match=named):
        encode_rows([row(("user", "a"), number=3)], tokenizer, template_kwargs={})


def test_a_template_that_refuses_names_the_row(tokenizer):
    named = has("f row 9", "user, tool", "no tools here", "data.apply_chat_template_kwargs")
    with pytest.raises(DataError, match=named):
        render(row(("user", "a"), ("tool", "b"), number=9), tokenizer, {})


def test_zero_tokens_are_refused(tokenizer):
    tokenizer.chat_template = "{{ '' }}"
    with pytest.raises(DataError, match=has("f row 4", "0 tokens", "need at least one")):
        encode_rows([row(("user", "a"), number=4)], tokenizer, template_kwargs={})


def test_many_chunks_keep_the_order(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenize, "CHUNK_ROWS", 2)
    rows = [row(("user", "a " * i + "b")) for i in range(7)]
    assert list(map(len, encoded(tokenizer, *rows))) == [4 + i for i in range(7)]
    assert encoded(tokenizer) == []


@pytest.mark.parametrize(
    ("mode", "limit", "kept"),
    [
        ("left", 3, [3, 4, 5]),
        ("right", 3, [1, 2, 3]),
        ("middle", 3, [1, 4, 5]),
        ("middle", 4, [1, 2, 4, 5]),
        ("left", 1, [5]),
        ("right", 1, [1]),
        ("middle", 1, [5]),
        ("middle", 5, [1, 2, 3, 4, 5]),
        ("left", 6, [1, 2, 3, 4, 5]),
    ],
)
def test_truncate(mode: str, limit: int, kept: list[int]):
    assert truncate(array("i", [1, 2, 3, 4, 5]), limit, mode).tolist() == kept


LENGTHS = [3, 9, 4, 7]
ROWS = [row(("user", "x"), number=i) for i in range(4)]
IDS = [array("i", range(n)) for n in LENGTHS]


def test_filter_drops_and_counts():
    report = fit_lengths(ROWS, IDS, DataConfig(max_prompt_length=4, filter_overlong_prompts=True))
    assert report.kept == [0, 2]
    assert report.token_ids == [IDS[0], IDS[2]]
    assert report.dropped == 2
    assert report.cut == 0


def test_cutting_counts_and_keeps_all():
    report = fit_lengths(ROWS, IDS, DataConfig(max_prompt_length=4, truncation="middle"))
    assert report.kept == [0, 1, 2, 3]
    assert report.token_ids[1].tolist() == [0, 1, 7, 8]
    assert (report.dropped, report.cut) == (0, 2)


def test_error_mode_names_rows_lengths_limit_and_keys():
    parts = [
        "2 prompts",
        "data.max_prompt_length=4",
        "longest has 9",
        "f row 1: 9 tokens",
        "f row 3: 7 tokens",
    ]
    keys = [
        "data.max_prompt_length=9",
        "data.filter_overlong_prompts=True",
        "data.truncation=left, right or middle",
    ]
    with pytest.raises(DataError, match=has(*parts, *keys)):
        fit_lengths(ROWS, IDS, DataConfig(max_prompt_length=4))


def test_error_mode_is_content_with_prompts_of_exactly_the_limit():
    assert fit_lengths(ROWS, IDS, DataConfig(max_prompt_length=9)).kept == [0, 1, 2, 3]


def test_settings_that_cannot_work_come_together():
    named = has("2 problems", "'midle'", "'middle'", "data.max_prompt_length=0")
    with pytest.raises(ConfigError, match=named):
        fit_lengths(ROWS, IDS, DataConfig(max_prompt_length=0, truncation="midle"))


def test_half_a_letter_is_read_as_a_replacement_character(tokenizer):
    halves = [row(("user", "a \ud83d b")), row(("user", "a \ufffd b"))]
    first, second = encode_rows(halves, tokenizer, template_kwargs={})
    assert first == second
