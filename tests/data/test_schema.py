from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

from rmrl.data.column_names import ColumnNames
from rmrl.data.json_text import reference_value
from rmrl.data.rows import Row
from rmrl.data.schema import PromptRow, check_rows, plain
from rmrl.errors import DataError

USER = [{"role": "user", "content": "hi"}]


def check(*fields: dict, **columns: str) -> list[PromptRow]:
    rows = [
        Row(file="d/f.parquet", label="f.parquet", number=i, fields=f) for i, f in enumerate(fields)
    ]
    return [row.prompt for row in check_rows(rows, ColumnNames(columns))]


def refused(parts: list[str], *fields: dict, **columns: str) -> str:
    with pytest.raises(DataError) as caught:
        check(*fields, **columns)
    text = str(caught.value)
    assert re.search("(?s)" + ".*".join(re.escape(p) for p in parts), text), text
    return text


def test_a_full_row():
    info = {"index": 3, "deep": [{"k": None}]}
    (row,) = check(
        {
            "prompt": [{"role": "system", "content": "be kind"}, *USER],
            "data_source": "gsm8k",
            "rm_prompt": "told",
            "rm_prompt_0": "",
            "rm_prompt_helpful": [{"role": "assistant", "content": "x"}],
            "rm_prompt_null": None,
            "reward_model": {"style": "rule", "ground_truth": "42"},
            "ability": "math",
            "extra_info": info,
            "unrelated": 1,
        }
    )
    assert row.id == "f.parquet:0"
    assert row.where == "d/f.parquet row 0"
    assert [m["role"] for m in row.messages] == ["system", "user"]
    assert row.plain_text is False
    assert row.rm_prompts == {
        "": "told",
        "0": "",
        "helpful": ({"role": "assistant", "content": "x"},),
    }
    assert row.data_source == "gsm8k"
    assert row.ground_truth == "42"
    assert row.ability == "math"
    assert row.extra_info == info


@pytest.mark.parametrize("null", [None, float("nan")])
def test_null_columns_are_as_good_as_absent(null: object):
    (bare,) = check({"prompt": USER})
    names = ["data_source", "rm_prompt", "rm_prompt_a", "reward_model", "ability", "extra_info"]
    (nulls,) = check({"prompt": USER, **dict.fromkeys(names, null)})
    assert nulls == bare
    assert bare.data_source == ""
    assert bare.rm_prompts == {}
    assert bare.ground_truth is None
    assert bare.ability == ""
    assert bare.extra_info == {}


def test_a_string_prompt_is_one_user_turn():
    (row,) = check({"prompt": "héllo 日本"})
    assert row.messages == ({"role": "user", "content": "héllo 日本"},)
    assert row.plain_text is True


def test_a_string_that_only_looks_like_json_is_text():
    (row,) = check({"prompt": '[1, 2] what is the "role" of these?'})
    assert row.plain_text is True


def test_openai_content_parts_and_null_keys():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    (row,) = check(
        {"prompt": [{"role": "user", "content": parts, "name": None, "tool_calls": None}]}
    )
    assert row.messages == ({"role": "user", "content": "ab"},)


def test_a_tool_call_may_have_no_content():
    calls = [{"id": "1", "type": "function"}]
    (row,) = check(
        {
            "prompt": [
                *USER,
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "content": "7"},
            ]
        }
    )
    assert row.messages[1] == {"role": "assistant", "content": "", "tool_calls": calls}


def test_openai_messages_column_leaves_out_the_old_answer():
    (row,) = check({"messages": [*USER, {"role": "assistant", "content": "old"}]})
    assert row.messages == tuple(USER)


def test_a_prompt_column_may_end_in_an_assistant_turn():
    (row,) = check({"prompt": [*USER, {"role": "assistant", "content": "Sure,"}]})
    assert row.messages[-1] == {"role": "assistant", "content": "Sure,"}


def test_numpy_becomes_plain_python():
    messages = np.array([{"role": "user", "content": "hi"}], dtype=object)
    info = {"i": np.int64(3), "v": np.array([[1.5], [2.5]]), "t": (np.float32(0.5),)}
    (row,) = check({"prompt": messages, "extra_info": info})
    assert row.messages == tuple(USER)
    assert row.extra_info == {"i": 3, "v": [[1.5], [2.5]], "t": [0.5]}
    assert type(row.extra_info["i"]) is int
    assert type(row.extra_info["v"][0][0]) is float
    assert plain(np.array("x")[()]) == "x"


@pytest.mark.parametrize(
    ("value", "text"), [("7", "7"), (7, "7"), (0, "0"), (0.5, "0.5"), (None, None), ("", "")]
)
def test_ground_truth(value: object, text: str | None):
    assert (
        check({"prompt": USER, "reward_model": {"style": "rule", "ground_truth": value}})[
            0
        ].ground_truth
        == text
    )
    assert check({"prompt": USER, "reward_model": value})[0].ground_truth == text


@pytest.mark.parametrize(
    ("columns", "fields"),
    [
        ({}, {"reward_model": {"style": "rule", "ground_truth": {"target": ["Paris", "Lutèce"]}}}),
        ({"reference": "gold"}, {"gold": {"target": ["Paris", "Lutèce"]}}),
        ({"reference": "gold"}, {"gold": {"ground_truth": {"target": ["Paris", "Lutèce"]}}}),
    ],
)
def test_a_reference_that_is_no_text_is_its_json_text_with_the_value(columns: dict, fields: dict):
    (row,) = check({"prompt": USER, **fields}, **columns)
    assert row.ground_truth == '{"target": ["Paris", "Lutèce"]}'
    for reference in (row.ground_truth, pickle.loads(pickle.dumps(row.ground_truth))):
        assert reference_value(reference) == {"target": ["Paris", "Lutèce"]}


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ('{"style": "rule", "ground_truth": "4"}', "4"),
        (' {"ground_truth": 4}', "4"),
        ('{"ground_truth": null}', None),
        ('{"answer": "4"}', '{"answer": "4"}'),
        ('the key "ground_truth"', 'the key "ground_truth"'),
        ('{"ground_truth": "4"', '{"ground_truth": "4"'),
    ],
)
def test_a_reward_model_in_json_text(text: str, reference: str | None):
    assert check({"prompt": USER, "reward_model": text})[0].ground_truth == reference


def test_a_reference_holds_no_half_letters():
    (row,) = check({"prompt": USER, "reward_model": ["a\ud83d"]})
    assert (row.ground_truth, reference_value(row.ground_truth)) == ('["a\ufffd"]', ["a\ufffd"])


def test_reward_model_without_ground_truth():
    assert check({"prompt": USER, "reward_model": {"style": "model"}})[0].ground_truth is None


def test_other_column_names():
    (row,) = check({"q": "hi", "src": "s"}, prompt="q", data_source="src")
    assert (row.messages[0]["content"], row.data_source) == ("hi", "s")


def test_missing_prompt_column_names_those_there_and_the_nearest():
    parts = [
        "1 problem in d/f.parquet",
        "row 0, column 'prompt'",
        "only the columns promt, answer",
        "need a column 'prompt'",
    ]
    refused(
        [*parts, "did you mean data.columns.prompt=promt?"],
        {"promt": "x", "answer": "y"},
        {"promt": "x"},
    )


def test_a_missing_column_is_said_once_per_file():
    text = refused(["1 problem in"], *[{"q": 1}] * 9)
    assert text.count("column 'prompt': saw only") == 1


def test_a_named_source_column_must_exist():
    parts = ["row 0, column 'sauce'", "need a column 'sauce'", "data.columns.data_source"]
    refused(parts, {"prompt": "x", "source": "s"}, data_source="sauce")


LONG = "z" * 10_000


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"prompt": 5}, ["column 'prompt': saw 5 (int)", "list of", "data.columns.prompt"]),
        ({"prompt": None}, ["column 'prompt': saw None (NoneType)"]),
        ({"prompt": USER[0]}, ["column 'prompt'", "(dict)", "put the message into a list"]),
        ({"prompt": []}, ["column 'prompt': saw [] (list), which has no text", "fill the prompt"]),
        ({"prompt": "  \n"}, ["column 'prompt'", "no text"]),
        ({"prompt": ["hi"]}, ["saw 'hi' (str) as message 0"]),
        (
            {"prompt": [*USER, {"role": "user"}]},
            ["saw the keys role in message 1", "role and content"],
        ),
        (
            {"prompt": [{"from": "human", "value": "x"}]},
            ["saw the keys from, value in message 0", "from -> role"],
        ),
        (
            {"prompt": [{"role": "human", "content": "x"}]},
            [
                "the role 'human' (str) in message 0",
                "one of system, user, assistant, tool, developer",
            ],
        ),
        ({"prompt": [{"role": None, "content": "x"}]}, ["the role None"]),
        ({"prompt": [{"role": "user", "content": 3}]}, ["saw 3 (int) as content of message 0"]),
        (
            {"prompt": [{"role": "user", "content": None}]},
            ["saw None (NoneType) as content of message 0"],
        ),
        (
            {"prompt": [{"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}]},
            ["image_url", "only text is supported"],
        ),
        (
            {"prompt": '[{"role": "user", "content": "hi"}]'},
            ["messages written as JSON text", "json.loads"],
        ),
        ({"prompt": USER, "rm_prompt": 4}, ["column 'rm_prompt': saw 4 (int)"]),
        (
            {"prompt": USER, "rm_prompt_b": [{"role": "x", "content": ""}]},
            ["column 'rm_prompt_b': saw the role 'x'"],
        ),
        (
            {"prompt": USER, "reward_model": b"1"},
            ["column 'reward_model': saw b'1' (bytes)", "json.dumps"],
        ),
        (
            {"prompt": USER, "reward_model": {"ground_truth": b"a"}},
            ["column 'reward_model.ground_truth': saw b'a' (bytes)"],
        ),
        (
            {"prompt": USER, "reward_model": {"groundtruth": "a"}},
            ["column 'reward_model': saw the key 'groundtruth'", "'ground_truth'"],
        ),
        ({"prompt": USER, "reward_model": True}, ["column 'reward_model': saw True (bool)"]),
        (
            {"prompt": USER, "data_source": 3},
            ["column 'data_source': saw 3 (int)", "need a string"],
        ),
        (
            {"prompt": USER, "extra_info": "s"},
            ["column 'extra_info': saw 's' (str)", "need a mapping"],
        ),
        ({"prompt": [LONG]}, ["zzz...zzz", "(str) as message 0"]),
    ],
)
def test_each_problem_names_file_row_column_seen_and_need(fields: dict, parts: list[str]):
    text = refused(
        ["1 problem in d/f.parquet", "row 1, column", *parts[1:]], {"prompt": USER}, fields
    )
    assert parts[0] in text
    assert len(text) < 800


def test_several_problems_of_one_row_come_together():
    text = refused(["3 problems in d/f.parquet"], {"prompt": 1, "data_source": 2, "extra_info": 3})
    assert [re.search(r"column '(\w+)'", line)[1] for line in text.splitlines()[1:]] == [
        "prompt",
        "data_source",
        "extra_info",
    ]


def test_at_most_five_problems():
    text = refused(
        ["5 problems in d/f.parquet (the first ones)", "row 0", "row 8"],
        *[{"prompt": i if i % 2 == 0 else "ok"} for i in range(40)],
    )
    assert len(text.splitlines()) == 6


def test_good_rows_before_the_first_problem_stream_out():
    rows = iter(
        [
            Row(file="f", label="f", number=i, fields={"prompt": "ok" if i < 2 else None})
            for i in range(3)
        ]
    )
    stream = check_rows(rows, ColumnNames())
    assert [next(stream).prompt.id, next(stream).prompt.id] == ["f:0", "f:1"]
    with pytest.raises(DataError, match="row 2"):
        next(stream)


def test_a_column_of_another_meaning_is_not_suggested():
    fields = {"prompt": "x", "response": "y"}
    row = Row(file="d/f.parquet", label="f.parquet", number=0, fields=fields)
    with pytest.raises(DataError) as caught:
        list(check_rows([row], ColumnNames({"prompt": "question"})))
    assert "did you mean" not in str(caught.value)
    assert "only the columns prompt, response" in str(caught.value)


def test_a_malformed_history_hides_no_other_problem():
    refused(
        ["column 'history'", "column 'data_source'"],
        {"query": "q", "history": [1], "data_source": 3},
    )


def test_extra_info_may_be_json_text():
    first, other = check(
        {"prompt": USER, "extra_info": '{"level": 3}'}, {"prompt": USER, "extra_info": "null"}
    )
    assert first.extra_info == {"level": 3}
    assert other.extra_info == {}
    refused(
        ["column 'extra_info': saw [1] (list)", "need a mapping"],
        {"prompt": USER, "extra_info": "[1]"},
    )
