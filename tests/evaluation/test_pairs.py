"""Pairs in the layouts of published sets are read as those with plain columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.data.column_names import ColumnNames
from rmrl.errors import DataError
from rmrl.evaluation.formats import Fields
from rmrl.evaluation.formats.arena import as_battle
from rmrl.evaluation.formats.pairs import Pairs
from rmrl.evaluation.items import Item
from rmrl.evaluation.read_items import read_items

USER = {"role": "user", "content": "Hi"}
GOOD = {"role": "assistant", "content": "good"}
BAD = {"role": "assistant", "content": "bad"}
OTHER = {"role": "assistant", "content": "other"}
WEBGPT = {
    "question": {"dataset": "eli5", "id": "7", "full_text": "Hi"},
    "answer_0": "good",
    "answer_1": "bad",
}
ARENA = {
    "model_a": "x",
    "model_b": "y",
    "conversation_a": [USER, GOOD],
    "conversation_b": [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "image": None}]},
        {"role": "assistant", "content": [{"type": "text", "text": "bad"}]},
    ],
}
KAGGLE = {
    "model_a": "x",
    "prompt": '["Hi", "And?"]',
    "response_a": '["good", "good"]',
    "response_b": '["other", null]',
}
SYSTEM = {"role": "system", "content": "Be kind."}
SECOND = {"role": "user", "content": "And?"}
FROM_HUMAN = {"from": "human", "value": "Hi"}
FROM_GPT = {"from": "gpt", "value": "good"}
TEXTS = {"chosen": "good", "rejected": "bad"}
HH = "\n\nHuman: Hi\n\nAssistant:"


def read(row: dict[str, Any], *, needs_texts: bool = True) -> Item:
    names = ColumnNames()
    fields = Fields(
        place="pairs.jsonl row 0", number=0, values=row, names=names, needs_texts=needs_texts
    )
    return Pairs().item(fields)


@pytest.mark.parametrize(
    ("row", "prompt", "good"),
    [
        ({"prompt": "Hi", "chosen": "good", "rejected": "bad"}, "Hi", {0}),
        ({"prompt": "Hi", "chosen": [GOOD], "rejected": "bad"}, "Hi", {0}),
        ({"prompt": "Hi", "chosen": [USER, GOOD], "rejected": [USER, BAD]}, "Hi", {0}),
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, (USER,), {0}),
        # The conversations have more than the prompt: a system turn, a dialogue that begins so.
        (
            {"prompt": "Hi", "chosen": [SYSTEM, USER, GOOD], "rejected": [SYSTEM, USER, BAD]},
            (SYSTEM, USER),
            {0},
        ),
        (
            {
                "prompt": "Hi",
                "chosen": [USER, GOOD, SECOND, GOOD],
                "rejected": [USER, GOOD, SECOND, BAD],
            },
            (USER, GOOD, SECOND),
            {0},
        ),
        ({"chosen": f"{HH} good", "rejected": f"{HH} bad"}, (USER,), {0}),
        ({"chosen": f"{HH} good\n\nHuman: And?", "rejected": f"{HH} bad"}, (USER,), {0}),
        ({"prompt": HH, "response_a": "good", "response_b": "bad", "label": "B"}, (USER,), {1}),
        (
            {"context": [USER], "response1": "good", "response2": "bad", "overall_preference": 3},
            (USER,),
            {1},
        ),
        (
            {"prompt": "Hi", "response_1": "good", "response_2": "bad", "preference_strength": 0},
            "Hi",
            set(),
        ),
        ({"question": "Hi", "chosen": "good", "rejected": "bad"}, "Hi", {0}),
        ({"instruction": "Hi", "input": "", "chosen": "good", "rejected": "bad"}, "Hi", {0}),
        ({"instruction": "Hi", "input": "x", "chosen": "good", "rejected": "bad"}, "Hi\n\nx", {0}),
        ({"question": "?", "chosen": [USER, GOOD], "rejected": [USER, BAD]}, (USER,), {0}),
        ({"prompt": "Hi", "chosen": "good", "rejected": "bad", "label": 1}, "Hi", {0}),
        ({"trajectory": [{"from": "user", "value": "Hi"}], **TEXTS}, (USER,), {0}),
        ({"messages": [USER, GOOD], "rejected_response": "bad"}, (USER,), {0}),
        ({**WEBGPT, "score_0": 0.5, "score_1": -0.5}, "Hi", {0}),
        ({**WEBGPT, "score_0": -0.25, "score_1": 0.25}, "Hi", {1}),
        ({**WEBGPT, "score_0": 0.0, "score_1": 0.0}, "Hi", set()),
        ({**ARENA, "winner": "model_a"}, (USER,), {0}),
        ({**ARENA, "winner": "model_b"}, (USER,), {1}),
        ({**ARENA, "winner": "tie (bothbad)"}, (USER,), set()),
        (
            {
                "instruction": "Hi",
                "input": "",
                "output_1": "good",
                "output_2": "bad",
                "preference": 1.0,
            },
            "Hi",
            {0},
        ),
        (
            {"instruction": "Hi", "output_1": "good", "output_2": "bad", "preference": 1.5},
            "Hi",
            set(),
        ),
        (
            {"prompt": "Hi", "response_1": "good", "response_2": "bad", "winner": "model_b"},
            "Hi",
            {1},
        ),
        # LLaMA-Factory's layouts: turns of ShareGPT, a system text, a history.
        (
            {
                "conversations": [FROM_HUMAN],
                "chosen": FROM_GPT,
                "rejected": {"from": "gpt", "value": "bad"},
            },
            (USER,),
            {0},
        ),
        (
            {"conversations": [FROM_HUMAN, FROM_GPT], "chosen": "good", "rejected": "bad"},
            (USER,),
            {0},
        ),
        (
            {
                "instruction": "And?",
                "history": [["Hi", "good"]],
                "system": "Be kind.",
                "chosen": "good",
                "rejected": "bad",
            },
            (SYSTEM, USER, GOOD, SECOND),
            {0},
        ),
        (
            {"system": "Be kind.", "question": "Hi", "chosen": "good", "rejected": "bad"},
            (SYSTEM, USER),
            {0},
        ),
        (
            {
                "system": "Be kind.",
                "prompt": "Hi",
                "chosen": [USER, GOOD],
                "rejected": [SYSTEM, USER, BAD],
            },
            (SYSTEM, USER),
            {0},
        ),
        ({"system": "x", "prompt": [SYSTEM, USER], **TEXTS}, (SYSTEM, USER), {0}),
        ({"system": None, "prompt": "Hi", **TEXTS}, "Hi", {0}),
        ({"question": "Hi", "response_j": "good", "response_k": "bad"}, "Hi", {0}),
        (
            {
                "orig_instruction": "Hi",
                "orig_response_A": "good",
                "orig_response_B": "bad",
                "orig_preference": "B",
            },
            "Hi",
            {1},
        ),
        (
            {
                "info": {"post": "Hi", "article": None},
                "summaries": [{"text": "good"}, {"text": "bad"}],
                "choice": 1,
            },
            "Hi",
            {1},
        ),
        (
            {
                "info": {"post": None, "article": "Hi"},
                "summaries": [{"text": "good"}, {"text": "bad"}],
                "choice": 0,
            },
            "Hi",
            {0},
        ),
        # A csv file's cells are text.
        (
            {
                "prompt": "Hi",
                "response_1": "good",
                "response_2": "bad",
                "preference_strength": "-2",
            },
            "Hi",
            {0},
        ),
    ],
)
def test_published_pairs(row: dict[str, Any], prompt: Any, good: set[int]) -> None:
    item = read(row)
    assert (item.prompt, item.responses) == (prompt, ("good", "bad"))
    assert item.comparisons[0].good == good


@pytest.mark.parametrize(
    "row",
    [
        {"chosen": [USER, GOOD, SECOND, GOOD], "rejected": [USER, OTHER, SECOND, BAD]},
        {
            "prompt": "Hi",
            "chosen": [USER, GOOD, SECOND, GOOD],
            "rejected": [USER, OTHER, SECOND, BAD],
        },
        {
            "chosen": f"{HH} good\n\nHuman: And?\n\nAssistant: good",
            "rejected": f"{HH} other\n\nHuman: And?\n\nAssistant: bad",
        },
        {
            "conversation_a": [USER, GOOD, SECOND, GOOD],
            "conversation_b": [USER, OTHER, SECOND, BAD],
            "winner": "model_a",
        },
    ],
)
def test_conversations_that_part_before_their_last_turn(row: dict[str, Any]) -> None:
    item = read(row)
    assert (item.prompt, item.responses) == ((USER,), ("good", "bad"))
    assert item.conversations == ((GOOD, SECOND, GOOD), (OTHER, SECOND, BAD))


def test_conversations_that_part_in_a_question_part_after_the_one_before() -> None:
    third = {"role": "user", "content": "Or?"}
    item = read({"chosen": [USER, GOOD, SECOND, GOOD], "rejected": [USER, GOOD, third, BAD]})
    assert item.prompt == (USER,)
    assert item.conversations == ((GOOD, SECOND, GOOD), (GOOD, third, BAD))
    with pytest.raises(DataError, match="begins as chosen does"):
        read({"chosen": [SYSTEM, USER, GOOD], "rejected": [SYSTEM, third, BAD]})


@pytest.mark.parametrize(
    ("winner", "good"), [((1, 0, 0), {0}), (("0", "1", "0"), {1}), ((0, 0, 1), set())]
)
def test_battles_as_kaggle_has_them(
    tmp_path: Path, winner: tuple[Any, ...], good: set[int]
) -> None:
    names = ("winner_model_a", "winner_model_b", "winner_tie")
    path = tmp_path / "train.json"
    path.write_text(json.dumps([{**KAGGLE, **dict(zip(names, winner, strict=True))}]))
    (item,) = read_items(str(path), Pairs(), {})
    empty = {"role": "assistant", "content": ""}
    assert (item.prompt, item.responses) == ((USER,), ("good", ""))
    assert item.conversations == ((GOOD, SECOND, GOOD), (OTHER, SECOND, empty))
    assert item.comparisons[0].good == good


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_the_verdict_of_mt_bench_is_about_the_first_turns(turn: int) -> None:
    row = {
        "conversation_a": [USER, GOOD, SECOND, GOOD],
        "conversation_b": [USER, BAD, SECOND, OTHER],
        "winner": "model_a",
    }
    item = read(dict(as_battle({**row, "turn": turn})))
    assert item.prompt == (USER,)
    expected = ((GOOD, SECOND, GOOD), (BAD, SECOND, OTHER)) if turn > 1 else ()
    assert item.conversations == expected
    assert item.responses == (("good", "other") if turn > 1 else ("good", "bad"))


@pytest.mark.parametrize(
    "values", [{"prompt": "Hi"}, {"response_b": '["one"]'}, {"response_a": "[1, 2]"}]
)
def test_other_rows_with_such_columns_stay_as_they_are(values: dict[str, Any]) -> None:
    row = {**KAGGLE, "winner_model_a": 1, "winner_model_b": 0, "winner_tie": 0, **values}
    assert as_battle(row) is row


def test_a_truth_value_is_a_text() -> None:
    assert read({"prompt": "Hi", "chosen": True, "rejected": "no"}).responses == ("true", "no")


def test_recorded_verdicts_need_the_label_alone() -> None:
    assert read({"id": 3, "label": 2}, needs_texts=False).comparisons[0].good == {1}
    # What stands in the place of texts is not read.
    assert read({"chosen": [1], "rejected": {}}, needs_texts=False).responses == ("", "")
    item = read({"id": 3}, needs_texts=False)
    assert (item.prompt, item.responses, item.comparisons[0].good) == ("", ("", ""), {0})


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"chosen": "good", "rejected": "bad"}, "need 'prompt'"),
        ({"prompt": "Hi", "chosen": "good"}, "need 'rejected'"),
        ({"instruction": "Hi", "history": [["x", None]], **TEXTS}, r"need a list of \[question"),
        ({"prompt": "Hi", "response_a": "good", "label": "A"}, "need 'response_b'"),
        ({"prompt": "Ho", "chosen": [USER, GOOD], "rejected": "bad"}, "one turn"),
        ({"chosen": [USER, GOOD], "rejected": [BAD]}, "begins as chosen does"),
        ({**ARENA, "conversation_b": [BAD], "winner": "tie"}, "begins as conversation_a does"),
        ({**ARENA, "winner": "x"}, "need one of model_a, model_b"),
        ({"prompt": "Hi", "chosen": [SYSTEM, USER, GOOD], "rejected": [USER, BAD]}, "one turn"),
        ({"prompt": "Hi", "chosen": [USER], "rejected": "bad"}, "end with the assistant's turn"),
    ],
)
def test_rows_that_are_refused(row: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(row)
