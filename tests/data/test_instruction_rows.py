"""Rows of instruction data sets, read as prompt and response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.column_names import DEFAULT_NAMES, ColumnNames
from rmrl.data.instruction_rows import with_prompt
from rmrl.data.problems import FieldError
from rmrl.data.responses import ResponseReader, answers_in
from rmrl.data.rows import Row
from rmrl.data.schema import prompt_messages

USER = {"role": "user", "content": "2+2?"}
SYSTEM = {"role": "system", "content": "Be brief."}
EARLIER = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"})


@pytest.mark.parametrize(
    ("fields", "prompt", "plain_text"),
    [
        ({"instruction": "2+2?", "output": "4"}, (USER,), True),
        ({"instruction": "Add.", "input": "2+2", "output": "4"},
         ({"role": "user", "content": "Add.\n\n2+2"},), True),
        ({"instruction": "2+2?", "input": "", "output": "4", "system": "Be brief.",
          "history": [["Hi", "Hello"]]}, (SYSTEM, *EARLIER, USER), False),
        ({"query": "2+2?", "response": "4", "history": [], "system": None}, (USER,), True),
        ({"instruction": "2+2?", "output": "the reference", "response": "4"}, (USER,), True),
        ({"prompt": "2+2?", "completion": "4"}, (USER,), True),
        ({"prompt": [USER], "completion": [{"role": "assistant", "content": "4"}]}, (USER,), False),
        ({"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]},
         (USER,), False),
        ({"system": "Be brief.", "conversations": [
            {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"},
            {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]},
         (SYSTEM, *EARLIER, USER), False),
    ],
)  # fmt: skip
def test_prompt_and_response(fields: dict[str, Any], prompt: Any, plain_text: bool):
    assert prompt_messages(fields, DEFAULT_NAMES) == (prompt, plain_text)
    assert answers_in(fields, DEFAULT_NAMES)[0] == ("4",)


def test_a_row_keeps_its_columns_and_may_hold_several_responses(tmp_path: Path):
    fields = {"instruction": "2+2?", "output": "four", "responses": ["4", "5"], "score": 3}
    reader = ResponseReader(ScoreDataConfig())
    row = Row(file="a.jsonl", label="a.jsonl", number=0, fields=fields, is_plain=True)
    answered = reader.one(row, 0)
    assert (answered.texts, answered.fields) == (("4", "5"), fields)
    assert answered.prompt.messages == (USER,)


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "2+2?", "instruction": "Be kind.", "output": "x", "response": "4"},
        {"messages": [USER], "conversations": []},
        {"text": "2+2?"},
        {"instruction": ["2+2?"], "output": "4"},
    ],
)
def test_other_rows_are_left_alone(fields: dict[str, Any]):
    assert with_prompt(fields, DEFAULT_NAMES) is fields


def test_a_completion_of_several_turns_is_a_conversation():
    turns = [*EARLIER, USER, {"role": "assistant", "content": "4"}]
    fields = {"prompt": turns[:1], "completion": turns[1:]}
    row = Row(file="a.jsonl", label="a.jsonl", number=0, fields=fields, is_plain=True)
    answered = ResponseReader(ScoreDataConfig()).one(row, 0)
    assert answered.texts == ("4",)
    conversation = answered.prompts[0].conversation
    assert conversation is not None
    assert (conversation.messages, conversation.first) == (tuple(turns), 1)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (["question", "generation"], "data.columns.prompt=question?"),
        (["prompt", "generated_text"], "data.columns.response=generated_text?"),
        (["promt", "question"], "data.columns.prompt=promt?"),
        (["prompt", "text"], "data.columns.response=..."),
    ],
)
def test_a_column_that_another_program_names_otherwise(columns: list[str], named: str):
    fields = dict.fromkeys(columns, "x")
    row = Row(file="a.jsonl", label="a.jsonl", number=0, fields=fields, is_plain=True)
    with pytest.raises(FieldError) as caught:
        ResponseReader(ScoreDataConfig()).one(row, 0)
    assert str(caught.value).endswith(named)


def test_named_columns_come_first():
    fields = {"instruction": "Be kind.", "output": "x", "question": "2+2?", "reply": "4"}
    names = ColumnNames({"prompt": "question", "response": "reply"})
    assert prompt_messages(fields, names) == ((USER,), True)
    assert answers_in(fields, names)[0] == ("4",)
    reply = ColumnNames({"response": "reply"})
    assert prompt_messages(fields, reply)[0][0]["content"] == "Be kind."
    assert answers_in(fields, reply)[0] == ("4",)


def test_a_history_of_other_things():
    with pytest.raises(FieldError, match=r"history.*a list of \[question, answer\]"):
        with_prompt({"instruction": "2+2?", "output": "4", "history": ["Hi"]}, DEFAULT_NAMES)
