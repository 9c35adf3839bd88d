"""Rows with responses: one or several, what else is read beside them, what is refused, and how they
are batched."""

from __future__ import annotations

import json
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.responses import AnsweredRow, answered_rows, batches
from rmrl.data.row_index import rows_to_score, survey
from rmrl.errors import DataError
from rmrl.offline.response_rows import response_rows
from tests.inputs import write_lines


def row(response: Any = "four", *, ask: str = "2 + 2?", **columns: Any) -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": ask}], "response": response, **columns}


def settings(path: Path, rows: list[dict[str, Any]], **keys: Any) -> ScoreDataConfig:
    file = write_lines(path / "rows.jsonl", rows)
    return ScoreDataConfig(files=str(file), **keys)


def read(path: Path, rows: list[dict[str, Any]], **keys: Any) -> list[AnsweredRow]:
    return list(answered_rows(settings(path, rows, **keys)))


def test_one_response_and_everything_beside_it(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "data_source": "sums",
        "rm_prompt": "Add.",
        "rm_prompt_1": "",
        "reward_model": {"ground_truth": 4},
        "extra_info": {"k": [1]},
    }
    found = read(tmp_path, [row(finish_reason="length", response_tokens=7, **columns)])[0]
    assert found.texts == ("four",)
    assert found.several is False
    assert found.finish_reasons == ("length",)
    assert found.tokens == (7,)
    prompt = found.prompt
    assert (prompt.id, prompt.data_source, prompt.ground_truth) == ("rows.jsonl:0", "sums", "4")
    assert prompt.rm_prompts == {"": "Add.", "1": ""}
    assert prompt.extra_info == {"k": [1]}
    assert prompt.messages == ({"role": "user", "content": "2 + 2?"},)
    assert found.fields["reward_model"] == {"ground_truth": 4}


def test_several_responses_under_either_name(tmp_path: Path) -> None:
    several = {
        "prompt": "2 + 2?",
        "responses": ["four", "5"],
        "finish_reason": ["stop", "length"],
        "response_tokens": [1, 2],
    }
    first, second, third = read(
        tmp_path, [several, row(["a", "b", "c"]), {**several, "response": None}]
    )
    assert first.texts == ("four", "5")
    assert first.several is True
    assert first.finish_reasons == ("stop", "length")
    assert first.tokens == (1, 2)
    assert second.texts == ("a", "b", "c")
    assert second.finish_reasons == ("stop",) * 3
    assert second.tokens == (0, 0, 0)
    # files of both kinds, joined by pandas, have nulls in one of the columns
    assert third.texts == ("four", "5")


def test_a_prompt_that_is_a_text_is_known_as_one(tmp_path: Path) -> None:
    text, messages = read(tmp_path, [{"prompt": "2 + 2?", "response": "4"}, row()])
    assert (text.prompt.plain_text, messages.prompt.plain_text) == (True, False)
    assert text.prompt.messages == ({"role": "user", "content": "2 + 2?"},)


def test_another_column_and_the_tokenizers_count(tmp_path: Path) -> None:
    rows = [{"prompt": "2 + 2?", "answer": "it is four"}]
    found = list(
        answered_rows(
            settings(tmp_path, rows, response_key="answer"),
            count_tokens=lambda text: len(text.split()),
        )
    )
    assert (found[0].texts, found[0].tokens) == (("it is four",), (3,))


def test_counts_that_pandas_made_floats(tmp_path: Path) -> None:
    table = pa.table(
        {"prompt": ["q", "q"], "response": ["a", "b"], "response_tokens": [12.0, float("nan")]}
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    assert [
        r.tokens for r in answered_rows(ScoreDataConfig(files=str(tmp_path / "rows.parquet")))
    ] == [(12,), (0,)]


def test_a_runs_samples_are_read_as_they_are(tmp_path: Path) -> None:
    sample = {
        "messages": [{"role": "user", "content": "2 + 2?"}],
        "response": "four",
        "ground_truth": "4",
        "reward": 1.0,
        "scores": {},
    }
    found = read(tmp_path, [sample])[0]
    assert (found.prompt.ground_truth, found.prompt.messages[-1]["content"]) == ("4", "2 + 2?")


def numbered(rows: list[AnsweredRow]) -> list[int]:
    """Groups as 0, 1, ... in the order of their first rows."""
    numbers: dict[bytes, int] = {}
    return [numbers.setdefault(r.group, len(numbers)) for r in rows]


def test_responses_to_one_prompt_are_a_group_wherever_they_stand(tmp_path: Path) -> None:
    rows = [row("a"), row("b"), row("c", ask="3 + 3?"), row("d")]
    assert numbered(read(tmp_path, rows)) == [0, 0, 1, 0]


def test_one_prompt_sampled_at_two_steps_makes_two_groups(tmp_path: Path) -> None:
    rows = [
        row("a", step=1, prompt_id="t:0"),
        row("b", step=2, prompt_id="t:0"),
        row("c", step=1, prompt_id="t:0"),
    ]
    assert numbered(read(tmp_path, rows)) == [0, 1, 0]
    # two rows of the data set with the same words are two prompts
    assert numbered(
        read(tmp_path, [row("a", step=1, prompt_id="t:0"), row("b", step=1, prompt_id="t:1")])
    ) == [0, 1]
    # nulls, as parquet files of both kinds have them: the prompt
    assert numbered(read(tmp_path, [row("a", step=None, prompt_id=None), row("b")])) == [0, 0]


def test_named_columns_define_the_groups(tmp_path: Path) -> None:
    rows = [
        row("a", run="x", pair=1),
        row("b", run="y", pair=1),
        row("c", run="x", pair=1.0, ask="3 + 3?"),
    ]
    assert numbered(read(tmp_path, rows, group_key="pair")) == [0, 0, 0]
    assert numbered(read(tmp_path, rows, group_key=["run", "pair"])) == [0, 1, 0]
    named = r"row 0 \(line 1\), column 'pairs': .*data.group_key"
    with pytest.raises(DataError, match=named):
        read(tmp_path, rows, group_key="pairs")


def scored_order(
    path: Path, rows: list[dict[str, Any]], done: int = 0, **keys: Any
) -> list[tuple[int, str]]:
    given = settings(path, rows, **keys)
    surveyed = survey(given, for_parquet=False, by_group=True)
    return [(r.number, r.texts[0]) for r in rows_to_score(given, surveyed, done=done)]


def test_rows_that_are_apart_are_scored_group_after_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(f"{i}", ask=f"{i % 3}?") for i in range(7)]
    by_group = [(0, "0"), (3, "3"), (6, "6"), (1, "1"), (4, "4"), (2, "2"), (5, "5")]
    assert scored_order(tmp_path, rows) == by_group
    assert scored_order(tmp_path, rows, done=2) == by_group[2:]
    # a window of one row: each is read in a pass of its own
    monkeypatch.setattr("rmrl.data.row_index._WINDOW_BYTES", 1)
    assert scored_order(tmp_path, rows) == by_group
    assert scored_order(tmp_path, rows, max_rows=4) == [(0, "0"), (3, "3"), (1, "1"), (2, "2")]


def test_rows_of_several_files_are_gathered_by_group(tmp_path: Path) -> None:
    table = pa.table(
        {"prompt": [f"{i % 2}?" for i in range(600)], "response": [f"p{i}" for i in range(600)]}
    )
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=100)
    write_lines(
        tmp_path / "two.jsonl", [{"prompt": f"{i % 2}?", "response": f"j{i}"} for i in range(4)]
    )
    given = ScoreDataConfig(files=[str(tmp_path / "one.parquet"), str(tmp_path / "two.jsonl")])
    surveyed = survey(given, for_parquet=True, by_group=True)
    assert surveyed.rows_of_files == (600, 4)
    assert surveyed.groups is not None
    assert surveyed.groups.groups == 2
    assert surveyed.groups.over_files == 2
    assert surveyed.groups.scattered is True
    texts = [r.texts[0] for r in rows_to_score(given, surveyed)]
    assert texts == [f"p{i}" for i in range(0, 600, 2)] + ["j0", "j2"] + [
        f"p{i}" for i in range(1, 600, 2)
    ] + ["j1", "j3"]


def test_a_survey_counts_groups_of_one(tmp_path: Path) -> None:
    rows = [row("a"), row("b", ask="3 + 3?"), row(["c", "d"], ask="4 + 4?"), row("e")]
    groups = survey(settings(tmp_path, rows), for_parquet=False, by_group=True).groups
    assert groups is not None
    assert (groups.groups, groups.singles, groups.scattered, groups.over_files) == (3, 1, True, 0)


def test_the_first_rows_of_all_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(json.dumps(row("a")) + "\n" + json.dumps(row("b")) + "\n")
    two.write_text(json.dumps(row("c")) + "\n" + json.dumps(row("d")) + "\n")
    found = answered_rows(ScoreDataConfig(files=[str(one), str(two)], max_rows=3))
    assert [(r.prompt.id, r.texts[0]) for r in found] == [
        ("one.jsonl:0", "a"),
        ("one.jsonl:1", "b"),
        ("two.jsonl:0", "c"),
    ]


@pytest.mark.parametrize("on_bad_row", ["fail", "quarantine"])
def test_what_is_behind_the_first_rows_is_not_read(tmp_path: Path, on_bad_row: str) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text(json.dumps(row("a")) + "\n{\n")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    files = [str(one), str(empty)]
    data = ScoreDataConfig(files=files, max_rows=1, on_bad_row=on_bad_row)
    assert [r.texts for r in answered_rows(data)] == [("a",)]
    one.write_text(json.dumps(row("a")) + "\n")
    assert survey(data, for_parquet=False).rows_of_files == (1, 0)
    assert list(answered_rows(ScoreDataConfig(files=str(empty), max_rows=0))) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"response": None}, r"row 1 \(line 2\), column 'response': saw None"),
        ({"response": []}, r"column 'response': saw \[\]"),
        ({"response": ["a", None]}, r"column 'response': saw \['a', None\]"),
        ({"response": 4}, r"column 'response': saw 4 \(int\)"),
        (
            {"response": ["a", "b"], "response_tokens": 3},
            r"column 'response_tokens': saw 3 .*for each of 2 responses",
        ),
        ({"response_tokens": -1}, "column 'response_tokens'"),
        ({"response_tokens": float("inf")}, r"column 'response_tokens': saw inf \(float\)"),
        ({"response": ["a", "b"], "response_tokens": [1, float("nan")]}, "'response_tokens'"),
        ({"response_tokens": 1.5}, "column 'response_tokens'"),
        ({"response_tokens": 10**400}, "column 'response_tokens'"),
        ({"finish_reason": "eos"}, """column 'finish_reason': saw 'eos' .*"stop" or "length";"""),
        ({"prompt": []}, "column 'prompt'"),
        ({"ground_truth": True}, "column 'ground_truth'"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(tmp_path, [row(), {**row(), **changed}])


def test_a_missing_column_is_answered_with_those_there_are(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "reply": "a"}]
    with pytest.raises(DataError, match=r"prompt, reply; .*'response' .*data.columns.response"):
        read(tmp_path, rows)


def test_batches_keep_groups_only_where_they_must(tmp_path: Path) -> None:
    rows = read(tmp_path, [row(f"{i}", ask=f"{i // 3}?") for i in range(9)])

    def sizes(*, whole_groups: bool, size: int = 4) -> list[int]:
        return [
            len(batch) for batch in batches(iter(rows), repeat(size), whole_groups=whole_groups)
        ]

    assert sizes(whole_groups=False) == [4, 4, 1]
    assert sizes(whole_groups=True) == [6, 3]
    lists = read(tmp_path, [row(["a", "b", "c"], ask=f"{i}?") for i in range(3)])
    assert [len(batch) for batch in batches(iter(lists), repeat(4), whole_groups=False)] == [
        2,
        1,
    ]  # a row is never cut


def test_a_survey_counts_and_types(tmp_path: Path) -> None:
    found = survey(settings(tmp_path, [row(["a", "b"]), row(["c"])]), for_parquet=True)
    assert (found.rows, found.responses, found.several) == (2, 3, True)
    assert found.schema is not None
    assert found.schema.field("response").type == pa.list_(pa.string())
    assert survey(settings(tmp_path, [row()]), for_parquet=False).schema is None


def test_a_survey_refuses_what_parquet_cannot_hold(tmp_path: Path) -> None:
    rows = [row(), {"prompt": "q", "responses": ["a", "b"]}]
    with pytest.raises(DataError, match=r"rows.jsonl:1 .*list of responses.*jsonl"):
        survey(settings(tmp_path, rows), for_parquet=True)
    assert survey(settings(tmp_path, rows), for_parquet=False).responses == 3
    with pytest.raises(DataError, match=r"data\.max_rows=0 leaves no row"):
        survey(settings(tmp_path, rows, max_rows=0), for_parquet=False)


def test_a_survey_reaches_the_last_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 999"):
        survey(settings(tmp_path, [*([row()] * 999), row(None)]), for_parquet=False)


def test_how_the_prompt_of_a_sample_ended(tmp_path: Path) -> None:
    row = {"prompt": "2 + 2?", "response": "four"}
    rows = [{**row, "opens_thinking": True}, {**row, "opens_thinking": False}, row]
    assert [r.prompt.opens_thinking for r in read(tmp_path, rows)] == [True, False, None]
    with pytest.raises(DataError, match=r"column 'opens_thinking': saw 'yes'.*need true or false"):
        read(tmp_path, [{**row, "opens_thinking": "yes"}])
    (tmp_path / "rows.csv").write_text("prompt,response,opens_thinking\na,b,true\na,b,\n")
    settings = ScoreDataConfig(files=str(tmp_path / "rows.csv"))
    assert [r.prompt.opens_thinking for r in answered_rows(settings)] == [True, None]


def test_the_last_assistant_turn_is_the_response_and_earlier_ones_the_conversation(
    tmp_path: Path,
) -> None:
    user = {"role": "user", "content": "2 + 2?"}
    guess = {"role": "assistant", "content": "5?"}
    tool = {"role": "tool", "content": "no"}
    last = {"role": "assistant", "content": "four"}
    rows: list[dict[str, Any]] = [
        {"messages": [user, guess, tool, last]},
        {"prompt": "2 + 2?", "response": [guess, tool, last]},
        {"prompt": [user], "response": [user, guess, tool, last, tool]},  # with its prompt
        {"prompt": [user], "response": [last]},
    ]
    for row_read, turns in zip(read(tmp_path, rows), [3, 3, 3, 1], strict=True):
        assert row_read.texts == ("four",)
        assert row_read.several is False
        assert row_read.prompt.messages == (user, guess, tool)[:turns]
        assert row_read.prompt.plain_text is False
    conversations = [{"talk": [user, last]}]
    columns = {"prompt": "talk", "response": "talk"}
    (only,) = read(tmp_path, conversations, columns=columns)
    assert (only.texts, only.prompt.messages) == (("four",), (user,))
    with pytest.raises(DataError, match="messages with an assistant turn"):
        read(tmp_path, [{"prompt": [user], "response": [tool]}])
    with pytest.raises(DataError, match="need a column 'response'"):
        read(tmp_path, [{"messages": [user]}])
    pair = {"prompt": "q", "chosen": "a", "rejected": "b"}
    with pytest.raises(DataError, match=r"rmrl eval eval\.format=pairs scores pairs; or name"):
        read(tmp_path, [pair])


def test_several_responses_that_are_conversations(tmp_path: Path) -> None:
    user = {"role": "user", "content": "2 + 2?"}
    guess = {"role": "assistant", "content": "5?"}
    tool = {"role": "tool", "content": "no"}
    last = {"role": "assistant", "content": "four"}
    rows: list[dict[str, Any]] = [
        {"prompt": [user], "responses": [[guess, tool, last], [last], [user, guess]]},
        {"prompt": "2 + 2?", "response": ["4", [last]]},
    ]
    first, second = read(tmp_path, rows)
    assert (first.texts, second.texts) == (("four", "four", "5?"), ("4", "four"))
    assert first.several
    assert second.several
    assert first.prompt.messages == second.prompt.messages == (user,)
    conversation, alone, with_prompt = response_rows([first])
    assert conversation.prompt.messages == (user, guess, tool)
    assert alone.prompt.messages == with_prompt.prompt.messages == (user,)
    assert with_prompt.text == "5?"
    with pytest.raises(DataError, match="or a list of either"):
        read(tmp_path, [{"prompt": [user], "responses": [[last], [tool]]}])
