"""The best response of every prompt, pairs for DPO and examples for SFT, from the rewards of a
job."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmrl.errors import ConfigError, DataError
from rmrl.offline.selections import Rewards, pick
from tests.inputs import read_lines, write_lines
from tests.offline.conftest import Bench


def write(bench: Bench, *rows: dict[str, Any]) -> Path:
    return write_lines(bench.folder / "rows.jsonl", rows)


def scattered(bench: Bench) -> Path:
    """Rewards (length / 10) of p: .1 .4 -, of q: .2 .2, of r: -, of s: .3, of t: .5 .2 .5."""
    rows = [
        ("p", "a"),
        ("q", "bb"),
        ("p", "long"),
        ("r", "silent"),
        ("q", "cc"),
        ("t", "first"),
        ("p", "silent too"),
        ("s", "one"),
        ("t", "22"),
        ("t", "third"),
    ]
    return write(bench, *({"prompt": ask, "response": text, "n": text[0]} for ask, text in rows))


def test_the_best_response_of_every_prompt(bench: Bench) -> None:
    bench.scored(scattered(bench), "select=best")
    best = read_lines(bench.folder / "s.best.jsonl")
    # in the order of the file; of equal ones the first; r has no reward
    assert [(row["prompt"], row["response"], row["reward"]) for row in best] == [
        ("q", "bb", 0.2),
        ("p", "long", 0.4),
        ("t", "first", 0.5),
        ("s", "one", 0.3),
    ]
    assert best[0]["score_length"] == 0.2
    assert best[0]["n"] == "b"
    assert any(
        "5 prompts; in 2 several responses share the highest reward, of which the first counts; 2"
        " responses have no reward" in text
        for text in bench.notices
    )
    assert len(read_lines(bench.folder / "s.jsonl")) == 10


@pytest.mark.parametrize("out", ["s.jsonl", "s.parquet", "s.csv"])
def test_the_best_of_a_list_of_responses(bench: Bench, out: str) -> None:
    tokens = {"response_tokens": [1, 2, 3], "finish_reason": ["stop", "length", "stop"]}
    data = write(
        bench,
        {"prompt": "p", "responses": ["a", "long", "bb"], **tokens, "level": 3},
        {"prompt": "q", "responses": ["silent", "", "b"], **tokens, "level": 4},
    )
    bench.scored(data, "select=best", "columns=[raw]", out=out)
    first, second = read_lines(bench.folder / "s.best.jsonl")
    assert first == {
        "prompt": "p",
        "response": "long",
        "response_tokens": 2,
        "finish_reason": "length",
        "level": 3,
        "reward": 0.4,
        "score_length": 0.4,
        "status_length": "ok",
        "detail_length": "",
        "extra_length": '{"first": "l"}',
        "raw_length": "",
    }
    assert (second["response"], second["reward"]) == ("b", 0.1)


def test_pairs_have_the_best_and_the_worst_response(bench: Bench) -> None:
    bench.scored(scattered(bench), "export=dpo")
    assert read_lines(bench.folder / "s.dpo.jsonl") == [
        {
            "prompt": "p",
            "chosen": "long",
            "rejected": "a",
            "score_chosen": 0.4,
            "score_rejected": 0.1,
        },
        {
            "prompt": "t",
            "chosen": "first",
            "rejected": "22",
            "score_chosen": 0.5,
            "score_rejected": 0.2,
        },
    ]
    assert any(
        "2 pairs; prompts left out: 2 with fewer than two responses with a reward, 1 with equal"
        " rewards" in text
        for text in bench.notices
    )


def test_a_pair_needs_the_margin(bench: Bench) -> None:
    data = write(
        bench,
        {"prompt": "p", "responses": ["a", "bb"]},
        {"prompt": "q", "responses": ["a", "bbbb"]},
    )
    bench.scored(data, "export=dpo", "export_margin=0.3")
    # 0.2 - 0.1 is below; 0.4 - 0.1 is 0.30000000000000004
    assert [row["prompt"] for row in read_lines(bench.folder / "s.dpo.jsonl")] == ["q"]
    assert any("1 below export_margin=0.3" in text for text in bench.notices)


def test_no_pair_of_two_prompts(bench: Bench) -> None:
    data = write(
        bench,
        {"prompt": "p", "response": "a", "family": 1},
        {"prompt": "other", "response": "bb", "family": 1},
    )
    bench.scored(data, "export=dpo", "data.group_key=family")
    assert read_lines(bench.folder / "s.dpo.jsonl") == []
    assert any("1 whose two responses answer different prompts" in t for t in bench.notices)


def test_examples_of_all_responses_or_the_best_ones(bench: Bench) -> None:
    data = scattered(bench)
    bench.scored(data, "export=sft")
    examples = read_lines(bench.folder / "s.sft.jsonl")
    texts = [row["completion"] for row in examples]
    assert texts == ["a", "bb", "long", "cc", "first", "one", "22", "third"]
    assert examples[0] == {"prompt": "p", "completion": "a"}
    bench.scored(data, "export=sft", "select=best", out="t.jsonl")
    texts = [row["completion"] for row in read_lines(bench.folder / "t.sft.jsonl")]
    assert texts == ["bb", "long", "first", "one"]


def test_messages_stay_messages(bench: Bench) -> None:
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    data = write(bench, {"prompt": turns, "responses": ["a", "bb"]})
    bench.scored(data, "export=dpo")
    (pair,) = read_lines(bench.folder / "s.dpo.jsonl")
    assert pair["prompt"] == turns
    assert pair["chosen"] == [{"role": "assistant", "content": "bb"}]
    assert pair["rejected"] == [{"role": "assistant", "content": "a"}]
    bench.scored(data, "export=sft", out="t.jsonl")
    assert read_lines(bench.folder / "t.sft.jsonl")[0] == {
        "prompt": turns,
        "completion": [{"role": "assistant", "content": "a"}],
    }


def test_trl_knows_what_the_files_are(bench: Bench, tmp_path: Path) -> None:
    data_utils = pytest.importorskip("trl.data_utils")
    turns = [{"role": "user", "content": "u"}]
    for prompt, conversational in (("u", False), (turns, True)):
        data = write(bench, {"prompt": prompt, "responses": ["a", "bb"]})
        for kind in ("dpo", "sft"):
            bench.scored(data, f"export={kind}", "overwrite=true")
            record = read_lines(bench.folder / f"s.{kind}.jsonl")[0]
            assert data_utils.is_conversational(record) is conversational


def test_the_numbers_do_not_depend_on_what_is_exported(bench: Bench) -> None:
    data = scattered(bench)
    running = "reward.transforms.length={kind: standardize, by: running, decay: 0.5}"
    bench.scored(data, running, "data.batch_size=2", out="plain.jsonl")
    bench.scored(data, running, "data.batch_size=2", "select=best", "export=dpo", out="more.jsonl")
    plain = (bench.folder / "plain.jsonl").read_bytes()
    assert (bench.folder / "more.jsonl").read_bytes() == plain


def test_shards_keep_the_responses_to_a_prompt_together(bench: Bench) -> None:
    data = scattered(bench)
    bench.scored(data, "export=dpo", out="whole.jsonl")
    pairs: list[dict[str, Any]] = []
    for i in (1, 2):
        bench.scored(data, "export=dpo", f"shard={i}/2")
        pairs += read_lines(bench.folder / f"s-{i}-of-2.dpo.jsonl")
    assert sorted(pairs, key=str) == sorted(read_lines(bench.folder / "whole.dpo.jsonl"), key=str)


def test_an_export_that_is_there_is_left_alone(bench: Bench) -> None:
    data = scattered(bench)
    there = bench.folder / "s.dpo.jsonl"
    there.write_text("precious")
    with pytest.raises(DataError, match=r"s\.dpo\.jsonl exists already and was left alone"):
        bench.scored(data, "export=dpo")
    assert there.read_text() == "precious"
    with pytest.raises(ConfigError, match=r"export_margin=-1\.0: must not be negative"):
        bench.scored(data, "export=sft", "export_margin=-1")


def test_an_export_is_made_by_a_job_that_died_before_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(job: object) -> None:
        raise KeyboardInterrupt

    data = scattered(bench)
    with monkeypatch.context() as patched:
        patched.setattr("rmrl.offline.score.export", dies)
        with pytest.raises(KeyboardInterrupt):
            bench.scored(data, "select=best")
    assert (bench.folder / "s.jsonl").exists()
    bench.scored(data, "select=best")
    assert len(read_lines(bench.folder / "s.best.jsonl")) == 4
    assert not list(bench.folder.glob("*.parts"))


def test_a_job_that_died_after_its_exports_replaces_its_own_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(job: object) -> None:
        raise KeyboardInterrupt

    data = scattered(bench)
    foreign = bench.folder / "s.dpo.jsonl"
    foreign.write_text("precious")
    with monkeypatch.context() as patched:
        patched.setattr("rmrl.offline.score.discard", dies)
        with pytest.raises(KeyboardInterrupt):
            bench.scored(data, "select=best")
    with pytest.raises(DataError, match=r"s\.dpo\.jsonl exists already and was left alone"):
        bench.scored(data, "select=best", "export=dpo")
    assert foreign.read_text() == "precious"
    (bench.folder / "s.best.jsonl").write_text("of the job that died")
    bench.scored(data, "select=best")
    assert len(read_lines(bench.folder / "s.best.jsonl")) == 4


def test_the_best_rows_of_csv_have_messages_in_any_column_of_the_prompt(bench: Bench) -> None:
    turns = [{"role": "user", "content": "u"}]
    data = bench.folder / "rows.csv"
    with data.open("w", newline="") as file:
        csv.writer(file).writerows([["ask", "response"], [json.dumps(turns), "a"]])
    bench.scored(data, "select=best", "data.prompt_key=ask")
    assert read_lines(bench.folder / "s.best.jsonl")[0]["ask"] == turns


def test_picks_by_hand() -> None:
    lists = pa.array([[1.0, None], [None], [3.0, 3.0], [2.0]], pa.list_(pa.float64()))
    rewards = Rewards.of_lists(lists.slice(0))
    assert rewards.firsts_N.tolist() == [0, 2, 3, 5]
    assert rewards.rows_F.tolist() == [0, 0, 1, 2, 2, 3]
    # groups: row 0 and 2 are 0, row 1 is 1, row 3 is 2
    picks = pick(rewards, np.array([0, 1, 0, 2]), groups=3)
    assert picks.best_G.tolist() == [3, -1, 5]
    assert picks.worst_G.tolist() == [0, -1, 5]
    assert picks.scored_G.tolist() == [3, 0, 1]
    assert (picks.tied, picks.missing) == (1, 2)
