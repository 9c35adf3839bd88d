"""Rows -> examples, told apart by their columns."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import RewardDataConfig
from rmrl.errors import DataError
from rmrl.reward_training.example import Example, pairs_of
from rmrl.reward_training.read_examples import read_examples, split
from tests.reward_training.pairs import write_rows

USER = {"role": "user", "content": "Hi"}
GOOD = {"role": "assistant", "content": "good"}
BAD = {"role": "assistant", "content": "bad"}
HH = "\n\nHuman: Hi\n\nAssistant:"


def read(tmp_path: Path, row: dict[str, Any], *, form: str = "pairs", **data: Any) -> Example:
    path = write_rows(tmp_path / "rows.jsonl", [row])
    (example,) = read_examples(
        str(path), "data.train_files", RewardDataConfig(**data), among=(form,)
    )
    return example


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"prompt": "Hi", "chosen": "good", "rejected": "bad"}, "Hi"),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}, (USER,)),
        ({"prompt": "Hi", "chosen": [GOOD], "rejected": [BAD]}, "Hi"),
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, (USER,)),
        # UltraFeedback, binarized: the conversations repeat the prompt.
        ({"prompt": "Hi", "chosen": [USER, GOOD], "rejected": [USER, BAD]}, "Hi"),
        ({"prompt": [USER], "chosen": [USER, GOOD], "rejected": [BAD]}, (USER,)),
        # HH: dialogues as texts.
        ({"chosen": f"{HH} good", "rejected": f"{HH} bad"}, (USER,)),
        ({"prompt": HH, "chosen": "good", "rejected": "bad"}, (USER,)),
        (
            {
                "chosen": f"{HH} Yes?\n\nHuman: So\n\nAssistant: good",
                "rejected": f"{HH} Yes?\n\nHuman: So\n\nAssistant: bad",
            },
            (USER, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "So"}),
        ),
        ({"messages": [USER, GOOD], "rejected_response": "bad"}, (USER,)),
        ({"question": "Hi", "chosen": "good", "rejected": "bad"}, "Hi"),
        ({"chosen": "\n\nHuman: Hi\n\ngood", "rejected": "\n\nHuman: Hi\n\nbad"}, "Human: Hi"),
    ],
)
def test_pairs_of_trl(tmp_path: Path, row: dict[str, Any], prompt: Any) -> None:
    example = read(tmp_path, row)
    assert example.prompt == prompt
    assert example.responses == ("good", "bad")
    assert (example.ranks, example.margin, example.ends) == ((0, 1), 0.0, (0, 1))


def test_dialogues_that_differ_early_keep_all_their_turns(tmp_path: Path) -> None:
    longer = "\n\nHuman: Hi\n\nAssistant: good\n\nHuman: Why?\n\nAssistant: So."
    example = read(tmp_path, {"chosen": longer, "rejected": f"{HH} bad"})
    assert example.prompt == (USER,)
    assert example.responses == ("So.", "bad")
    assert example.before == ((GOOD, {"role": "user", "content": "Why?"}), ())


@pytest.mark.parametrize(
    ("names", "verdicts"),
    [
        ("context response1 response2 overall_preference", (-2, 3, 0)),
        ("prompt response_1 response_2 preference_strength", (-1, 1, 0)),
        ("prompt response_a response_b label", ("A", "B", "tie")),
        ("prompt response_a response_b label", (1, 2, 0)),
        ("instruction output_1 output_2 label", (1, 2, 0)),
        ("prompt response_0 response_1 better_response_id", (0, 1, None)),
        ("history human_ref_A human_ref_B labels", (1, 0, None)),
    ],
)
def test_two_responses_with_a_verdict(
    tmp_path: Path, names: str, verdicts: tuple[Any, ...]
) -> None:
    first, second, tie = verdicts

    def row(verdict: Any, *texts: str) -> Example:
        fields = dict(zip(names.split(), ("Hi", *texts, verdict), strict=True))
        return read(tmp_path, fields, form="two_responses")

    for example in (row(first, "good", "bad"), row(second, "bad", "good")):
        assert (example.key, example.responses, example.ranks) == ("Hi", ("good", "bad"), (0, 1))
    if tie is None:
        with pytest.raises(DataError, match=f"'{names.split()[3]}'"):
            row(tie, "good", "bad")
    else:
        assert row(tie, "good", "bad").ranks == (0, 0)
        with pytest.raises(DataError, match="need one of"):
            row(9, "good", "bad")


@pytest.mark.parametrize(
    "row",
    [
        {
            "question": {"dataset": "eli5", "full_text": "Hi"},
            "answer_0": "bad",
            "answer_1": "good",
            "score_0": -0.5,
            "score_1": 0.5,
        },
        {"conversation_a": [USER, BAD], "conversation_b": [USER, GOOD], "winner": "model_b"},
    ],
)
def test_comparisons_of_webgpt_and_the_arena(tmp_path: Path, row: dict[str, Any]) -> None:
    example = read(tmp_path, row, form="two_responses")
    assert (example.key, example.responses, example.ranks) == ("Hi", ("good", "bad"), (0, 1))


OTHER = {"role": "assistant", "content": "other"}


@pytest.mark.parametrize(
    ("form", "row"),
    [
        ("pairs", {"chosen": [USER, GOOD, USER, GOOD], "rejected": [USER, OTHER, USER, BAD]}),
        (
            "two_responses",
            {
                "conversation_a": [USER, OTHER, USER, BAD],
                "conversation_b": [USER, GOOD, USER, GOOD],
                "winner": "model_b",
            },
        ),
    ],
)
def test_conversations_that_part_before_their_last_turn(
    tmp_path: Path, form: str, row: dict[str, Any]
) -> None:
    example = read(tmp_path, row, form=form)
    assert (example.prompt, example.responses) == ((USER,), ("good", "bad"))
    assert example.plain_responses == [[GOOD, USER, GOOD], [OTHER, USER, BAD]]
    items = [(item.rm_prompt, item.response) for item in example.score_items]
    assert items == [((USER, GOOD, USER), "good"), ((USER, OTHER, USER), "bad")]
    assert pairs_of([example]) == [example]
    assert example.is_conversation
    # The same answer behind another conversation is not the same.
    assert not replace(example, responses=("good", "good")).all_alike


def test_half_of_a_letter_is_read_as_in_scoring(tmp_path: Path) -> None:
    example = read(tmp_path, {"prompt": "Hi \ud83d", "chosen": [GOOD], "rejected": "\udc4d"})
    assert (example.prompt, example.responses) == ("Hi \ufffd", ("good", "\ufffd"))


def test_margin_source_and_columns_of_other_names(tmp_path: Path) -> None:
    row = {"q": "Hi", "better": "good", "worse": "bad", "margin": 1.5, "source": "web"}
    columns = {"prompt": "q", "chosen": "better", "rejected": "worse"}
    example = read(tmp_path, row, columns=columns)
    assert (example.prompt, example.margin, example.source) == ("Hi", 1.5, "web")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Hi", "responses": ["bad", "good", "fair"], "ranks": [2, 0, 1]},
        {"prompt": "Hi", "responses": ["bad", "good", "fair"], "scores": [0.1, 3, 2]},
        {"instruction": "Hi", "generations": ["bad", "good", "fair"], "ratings": [1, 5, 2]},
        {
            "context": [USER],
            "completions": [
                {"rank": 5, "completion": [BAD]},
                {"rank": 0, "completion": [GOOD]},
                {"rank": 1, "completion": [{"role": "assistant", "content": "fair"}]},
            ],
        },
        {
            "instruction": "Hi",
            "completions": [
                {"response": "fair", "overall_score": 6.0},
                {"response": "good", "overall_score": 9},
                {"response": "bad", "overall_score": 1},
            ],
        },
        {
            "prompt": HH,
            "answers": [
                {"answer": "fair", "model": "x", "rank": 2},
                {"answer": "bad", "model": "y", "rank": 6.0},
                {"answer": "good", "model": "z", "rank": 1},
            ],
        },
        {
            "question": "Hi",
            "answers": [
                {"text": "good", "pm_score": 4, "selected": True},
                {"text": "bad", "pm_score": -1, "selected": False},
                {"text": "fair", "pm_score": 0, "selected": False},
            ],
        },
        {
            "prompt": "Hi",
            "responses": ["good", "bad", "fair"],
            "ranks": [0, 2, 1],
            "answers": ["4"],
        },
    ],
)
def test_ranked_lists(tmp_path: Path, row: dict[str, Any]) -> None:
    example = read(tmp_path, row, form="ranked")
    assert example.responses == ("good", "fair", "bad")
    assert example.ranks == (0, 1, 2)
    assert example.key == "Hi"


def test_a_list_has_ties(tmp_path: Path) -> None:
    row = {"prompt": "Hi", "responses": ["a", "b", "c"], "scores": [1, 2, 2]}
    example = read(tmp_path, row, form="ranked")
    assert (example.responses, example.ranks) == (("b", "c", "a"), (0, 0, 1))
    with pytest.raises(DataError, match="of the form ranked"):
        read(tmp_path, row, form="pairs")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Hi", "response": "good", "attributes": {"helpfulness": 3, "verbosity": None}},
        {"prompt": "Hi", "response": "good", "helpfulness": 3.0, "id": 7},
        {"prompt": "Hi", "response": "good", "helpfulness": 3.0, "verbosity": math.nan},
    ],
)
def test_attributes_of_helpsteer(tmp_path: Path, row: dict[str, Any]) -> None:
    example = read(tmp_path, row, form="attributes")
    assert example.responses == ("good",)
    assert example.attributes == {"helpfulness": 3.0}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"prompt": "Hi", "answer": "good"},
            ["prompt, answer", "chosen, rejected", "data.columns"],
        ),
        ({"chosen": [USER], "rejected": [USER]}, ["chosen", "assistant"]),
        ({"prompt": "Ho", "chosen": [USER, GOOD], "rejected": [BAD]}, ["one turn"]),
        ({"chosen": [USER, GOOD], "rejected": [BAD]}, ["begins as chosen does"]),
        ({"prompt": 3, "chosen": "good", "rejected": "bad"}, ["'prompt'", "saw 3"]),
        ({"prompt": "Hi", "chosen": "good", "rejected": "bad", "margin": "x"}, ["'margin'"]),
        ({"prompt": "Hi", "chosen": "good", "rejected": "bad", "margin": math.nan}, ["saw nan"]),
        ({"prompt": "Hi", "chosen": None, "rejected": "bad"}, ["'chosen'", "saw None"]),
        ({"chosen": "good", "rejected": "bad"}, ["no prompt", "`prompt`"]),
        ({"prompt": [{**USER, "content": " "}], "chosen": "a", "rejected": "b"}, ["no prompt"]),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, row: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, row)
    for word in ["rows.jsonl row 0", *words]:
        assert word in str(caught.value)


def rows(count: int) -> list[dict[str, Any]]:
    return [{"prompt": f"p{i}", "chosen": "good", "rejected": f"bad {i}"} for i in range(count)]


def test_prompts_are_held_out_whole_and_the_same_each_time(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", rows(50) + rows(50))
    data = RewardDataConfig(train_files=str(path), val_share=0.2)
    parts = split(data, among=("pairs",), seed=3)
    assert (len(parts.train), len(parts.held_out), parts.rows) == (80, 20, 100)
    assert not {each.key for each in parts.train} & {each.key for each in parts.held_out}
    assert split(data, among=("pairs",), seed=3) == parts
    assert split(data, among=("pairs",), seed=4) != parts
    write_rows(path, [*rows(50), *rows(49), {"prompt": "p49", "chosen": "good", "rejected": "x"}])
    other = split(data, among=("pairs",), seed=3)
    assert (other.rows, other.digest == parts.digest) == (100, False)


def test_evaluation_sets_are_kept_out_and_counted(tmp_path: Path) -> None:
    train = write_rows(tmp_path / "rows.jsonl", rows(20))
    pair = {"chosen": "\n\nHuman: p4\n\nAssistant: a", "rejected": "\n\nHuman: p4\n\nAssistant: b"}
    # A row's system turn has no part in what is asked.
    asked = {"system": "Be kind.", "input": "p7"}
    evaluation = write_rows(
        tmp_path / "bench.jsonl", [{"instruction": "p3", "output_1": "x"}, asked, pair]
    )
    val = write_rows(tmp_path / "val.jsonl", rows(2))
    data = RewardDataConfig(
        train_files=str(train), val_files=str(val), exclude_files=str(evaluation)
    )
    parts = split(data, among=("pairs",), seed=1)
    assert (parts.excluded, parts.overlapping, len(parts.train)) == (3, 2, 15)
    assert len(parts.held_out) == 2
