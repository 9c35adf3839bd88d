from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.column_names import ColumnNames
from rmrl.data.responses import answered_rows
from rmrl.errors import DataError
from rmrl.evaluation.formats.fields import Fields
from tests.inputs import write_lines
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
PREF = ROOT.parent / "shared" / "data" / "pref"
USER, GOOD, BAD = (
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "good"},
    {"role": "assistant", "content": "bad"},
)
HH = "\n\nHuman: hello\n\nAssistant: hi\n\nHuman: q\n\nAssistant:"


@pytest.fixture(scope="module")
def preferences() -> ModuleType:
    return load_script(ROOT / "data_preprocess" / "preferences.py")


def said(pairs: list[dict[str, Any]]) -> list[tuple[list[str], str, str]]:
    """(prompt as "role: text" lines, chosen, rejected) of each pair."""
    return [
        ([f"{turn['role']}: {turn['content']}" for turn in p["prompt"]], p["chosen"], p["rejected"])
        for p in pairs
    ]


def pairs_of(preferences: ModuleType, record: dict[str, Any]) -> list[dict[str, Any]]:
    row = Fields(place="x.jsonl row 7", number=7, values=record, names=ColumnNames())
    return preferences.pairs_of(row)


ONE_QUESTION = [(["user: q"], "good", "bad")]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"prompt": "q", "chosen": "good", "rejected": "bad"}, ONE_QUESTION),
        ({"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]}, ONE_QUESTION),
        (
            {
                "prompt": "q",
                "chosen": [USER, GOOD],
                "rejected": [USER, BAD],
                "messages": [USER, GOOD],
            },
            ONE_QUESTION,
        ),
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, ONE_QUESTION),
        (
            {"chosen": HH + " good", "rejected": HH + " bad"},
            [(["user: hello", "assistant: hi", "user: q"], "good", "bad")],
        ),
        (
            {"prompt": HH, "chosen": " good", "rejected": " bad"},
            [(["user: hello", "assistant: hi", "user: q"], " good", " bad")],
        ),
        (
            {"instruction": "q", "input": "x", "chosen": "good", "rejected": "bad"},
            [(["user: q\n\nx"], "good", "bad")],
        ),
        ({"instruction": "q", "output_1": "bad", "output_2": "good", "label": 2}, ONE_QUESTION),
        (
            {
                "instruction": "q",
                "input": "",
                "response_1": True,
                "response_2": "bad",
                "annotators": [1, 1],
            },
            [(["user: q"], "true", "bad")],
        ),
        (
            {"messages": [USER], "best": "good", "losers": ["bad", "worse"]},
            [*ONE_QUESTION, (["user: q"], "good", "worse")],
        ),
        (
            {"prompt": "q", "chosen": "Human: is a word", "rejected": "bad"},
            [(["user: q"], "Human: is a word", "bad")],
        ),
        (
            {"prompt": "q", "chosen": "q", "rejected": "bad"},
            [(["user: q"], "q", "bad")],
        ),  # an echo is a response
        ({"prompt": "q", "chosen": "good", "rejected": ""}, [(["user: q"], "good", "")]),
        (
            {"context": [USER], "response1": "bad", "response2": "good", "overall_preference": 2},
            ONE_QUESTION,
        ),
        (
            {
                "conversation_a": [USER, GOOD],
                "conversation_b": [USER, BAD],
                "winner": "model_a",
            },
            ONE_QUESTION,
        ),
        ({"messages": [USER, GOOD], "rejected_response": "bad"}, ONE_QUESTION),
        (
            {"info": {"post": "q"}, "summaries": [{"text": "bad"}, {"text": "good"}], "choice": 1},
            ONE_QUESTION,
        ),
        # No pair: people disagree, saw a tie, the responses are equal, the better one is empty.
        ({"instruction": "q", "response_1": "a", "response_2": "b", "annotators": [1, 2, 1]}, []),
        ({"instruction": "q", "response_1": "a", "response_2": "b", "label": 0}, []),
        ({"prompt": "q", "chosen": "same", "rejected": "same"}, []),
        ({"prompt": "q", "chosen": " ", "rejected": "bad"}, []),
        # HH has a few dialogues that part before their last turn.
        ({"chosen": HH + " good", "rejected": HH + " bad\n\nHuman: so?\n\nAssistant: no"}, []),
        # So do most of the arena's dialogues with several turns.
        (
            {
                "conversation_a": [USER, GOOD, USER, GOOD],
                "conversation_b": [USER, BAD, USER, BAD],
                "winner": "model_a",
            },
            [],
        ),
    ],
)
def test_layouts(preferences: ModuleType, record: dict[str, Any], expected: list[Any]):
    assert said(pairs_of(preferences, record)) == expected


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"winner": 1}, ": saw only the columns winner; need a layout that --help lists"),
        (
            {"prompt": "q", "chosen": [USER, GOOD, USER], "rejected": "bad"},
            ", 'chosen': saw [{'role': 'user'",
        ),
        (
            {"chosen": [USER, GOOD], "rejected": [GOOD, BAD]},
            ", 'rejected': saw [{'role': 'assistant', 'content': 'good'}",
        ),
        ({"prompt": "q", "chosen": "good", "rejected": 3.5j}, ", column 'rejected': saw 3.5j"),
        (
            {"instruction": "q", "output_1": "a", "output_2": "b", "label": 3},
            ", 'label': saw 3; need one of A, a, 1, 1",
        ),
        (
            {"instruction": "q", "output_1": "a", "output_2": "b", "label": None},
            ", 'label': saw None; need a value",
        ),
        (
            {"instruction": "q", "response_1": "a", "response_2": "b", "annotators": [1, 3]},
            ", 'annotators': saw (1.0, 3.0); need 1 or 2 (0: a tie) from each annotator",
        ),
        ({"chosen": "good", "rejected": "bad"}, ": saw responses without a prompt"),
        (
            {"messages": [USER], "best": "good", "losers": []},
            ", 'losers': saw (); need a list of responses",
        ),
        (
            {"prompt": [{"speaker": "human", "text": "q"}], "chosen": "a", "rejected": "b"},
            ", column 'prompt': saw the keys speaker, text",
        ),
        (
            {"prompt": [{"from": "bot", "value": "q"}], "chosen": "a", "rejected": "b"},
            ", column 'prompt': saw the role 'bot' (str) in message 0",
        ),
    ],
)
def test_malformed_records(preferences: ModuleType, record: dict[str, Any], words: str):
    with pytest.raises(DataError) as caught:
        pairs_of(preferences, record)
    assert f"x.jsonl row 7{words}" in str(caught.value)


def write(path: Path, *records: dict[str, Any]) -> str:
    write_lines(path, records)
    return str(path)


def test_the_file_is_trls_layout_and_can_be_scored(
    preferences: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    first = {"id": 7, "subset": "s", "prompt": "q", "chosen": "good", "rejected": "bad"}
    source = write(tmp_path / "mine.jsonl", first, {"prompt": "p", "chosen": "x", "rejected": "x"})
    assert preferences.main(["--source", source, "--out", str(tmp_path / "out")]) == 0
    assert "1 rows left out" in capsys.readouterr().out
    path = tmp_path / "out" / "train.parquet"
    (row,) = pq.read_table(path).to_pylist()
    assert (row["prompt"], row["chosen"], row["rejected"]) == ([USER], [GOOD], [BAD])
    assert row["data_source"] == "mine"
    assert row["extra_info"] == {"split": "train", "index": 0, "id": "7", "subset": "s"}
    (answered,) = answered_rows(ScoreDataConfig(files=str(path)))
    assert answered.texts == ("good", "bad")


def test_pairs_of_one_prompt_stay_on_one_side(preferences: ModuleType, tmp_path: Path):
    records = [
        {"messages": [{"role": "user", "content": f"q{n}"}], "best": "a", "losers": ["b", "c", "d"]}
        for n in range(40)
    ]
    source = write(tmp_path / "mine.jsonl", *records)
    assert (
        preferences.main(
            ["--source", source, "--test-share", "0.3", "--out", str(tmp_path / "out")]
        )
        == 0
    )
    asked = [
        [
            r["prompt"][0]["content"]
            for r in pq.read_table(tmp_path / "out" / f"{s}.parquet").to_pylist()
        ]
        for s in ("train", "test")
    ]
    assert sum(map(len, asked)) == 120
    assert not set(asked[0]) & set(asked[1])


def test_a_malformed_row_is_named_and_nothing_is_written(
    preferences: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source = write(
        tmp_path / "mine.jsonl",
        {"prompt": "q", "chosen": "a", "rejected": "b"},
        {"prompt": "q", "winner": "a"},
    )
    assert preferences.main(["--source", source, "--out", str(tmp_path / "out")]) == 6
    assert (
        f"{source} row 1 (line 2): saw only the columns prompt, winner" in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not PREF.is_dir(), reason="the real preference data is not beside the checkout")
@pytest.mark.parametrize(
    ("name", "pairs"),
    [("hhh_alignment", 175), ("llmbar", 330), ("rmb_bon", 311), ("pandalm_human", None)],
)
def test_real_files(preferences: ModuleType, tmp_path: Path, name: str, pairs: int | None):
    assert preferences.main(["--source", str(PREF / f"{name}.jsonl"), "--out", str(tmp_path)]) == 0
    rows = pq.read_table(tmp_path / "train.parquet").num_rows
    if pairs is None:  # PandaLM: unanimous rows whose better response has text
        records = [json.loads(line) for line in (PREF / f"{name}.jsonl").open()]
        sides = [
            (r, {1: "response_1", 2: "response_2"}.get(r["annotators"][0]))
            for r in records
            if len(set(r["annotators"])) == 1
        ]
        kept = [
            r
            for r, better in sides
            if better and str(r[better]).strip() and r["response_1"] != r["response_2"]
        ]
        pairs = len(kept)
    assert rows == pairs
