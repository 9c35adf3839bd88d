"""shard=i/n: each row in exactly one shard, and all shards together are the whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmrl.errors import ConfigError, DataError
from rmrl.offline import job as job_module
from tests.inputs import read_lines, write_lines
from tests.offline.conftest import Bench
from tests.offline.test_job import Broken

BY_GROUP = "reward.transforms.length={kind: standardize, by: group}"


def numbered(bench: Bench, count: int, *, groups: int = 1000) -> Path:
    rows = []
    for i in range(count):
        rows.append({"prompt": f"q{i % groups}", "response": "x" * (i * 7 % 11 + 1), "i": i})
    return write_lines(bench.folder / "rows.jsonl", rows)


@pytest.mark.parametrize("settings", [(), (BY_GROUP,), ("data.batch_size=2",)])
def test_the_shards_together_are_the_whole_run(bench: Bench, settings: tuple[str, ...]) -> None:
    data = numbered(bench, 23, groups=5)
    bench.scored(data, *settings, out="whole.jsonl")
    parts: list[dict[str, Any]] = []
    sizes: list[int] = []
    for i in (1, 2, 3):
        bench.scored(data, *settings, f"shard={i}/3")
        rows = read_lines(bench.folder / f"s-{i}-of-3.jsonl")
        sizes.append(len(rows))
        parts += rows
    whole = read_lines(bench.folder / "whole.jsonl")
    assert sorted(parts, key=lambda row: row["i"]) == whole
    # 23 rows: every third one; 5 groups of 5, 5, 5, 4, 4 rows: groups 0 and 3, 1 and 4, 2
    assert sizes == ([9, 9, 5] if BY_GROUP in settings else [8, 8, 7])


def test_a_group_is_in_one_shard(bench: Bench) -> None:
    data = numbered(bench, 20, groups=4)
    prompts: list[set[str]] = []
    for i in (1, 2):
        bench.scored(data, BY_GROUP, f"shard={i}/2")
        prompts.append({row["prompt"] for row in read_lines(bench.folder / f"s-{i}-of-2.jsonl")})
    assert prompts == [{"q0", "q2"}, {"q1", "q3"}]


def test_shards_of_parquet_have_the_types_of_the_whole_file(bench: Bench) -> None:
    path = bench.folder / "rows.jsonl"
    path.write_text(
        '{"prompt": "q", "response": "a", "x": 1}\n{"prompt": "q", "response": "b", "x": 0.5}\n'
    )
    tables = []
    for i in (1, 2):
        bench.scored(path, f"shard={i}/2", out="s.parquet")
        tables.append(pq.read_table(bench.folder / f"s-{i}-of-2.parquet"))
    assert tables[0].schema.equals(tables[1].schema)
    assert [table["x"].to_pylist() for table in tables] == [[1.0], [0.5]]


def test_the_rows_of_parquet_are_chosen_by_the_shard(bench: Bench) -> None:
    data = numbered(bench, 600)
    bench.scored(data, out="rows.parquet")
    numbers: list[int] = []
    for i in (1, 2):
        bench.scored(bench.folder / "rows.parquet", f"shard={i}/2", out="s.parquet")
        part = pq.read_table(bench.folder / f"s-{i}-of-2.parquet")
        lengths = [len(text) / 10 for text in part["response"].to_pylist()]
        assert part["reward"].to_pylist() == lengths
        numbers += part["i"].to_pylist()
    assert numbers == [*range(0, 600, 2), *range(1, 600, 2)]


def test_a_bad_row_is_in_one_shard(bench: Bench) -> None:
    path = bench.folder / "rows.jsonl"
    good = '{"prompt": "q", "response": "a"}\n'
    path.write_text(good + "{\n" + good + "[]\n" + "{}\n" + good)
    read = []
    aside: list[int] = []
    for i in (1, 2):
        summary = bench.scored(path, f"shard={i}/2", "data.on_bad_row=quarantine")
        read.append((summary.rows_read, summary.quarantined))
        rows = read_lines(bench.folder / f"s-{i}-of-2.jsonl.quarantine.jsonl")
        aside += [row["row"] for row in rows]
    assert sorted(aside) == [1, 3, 4]
    assert read == [(3, 1), (3, 2)]  # 6 rows in all


def test_a_shard_goes_on_by_itself(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "PART_SECONDS", 0.0)
    job = Broken(bench)
    with pytest.raises(Exception, match="stops"):
        job.run("shard=2/2")  # of a, bb, ccc, stop, eeeee: bb and stop
    assert job.asked() == ["bb", "stop"]
    job.mended.touch()
    job.run("shard=1/2")
    assert job.asked() == ["a", "ccc", "eeeee"]
    job.run("shard=2/2")
    assert job.asked() == ["stop"]
    files = sorted(path.name for path in bench.folder.glob("s*.parquet*"))
    assert files == ["s-1-of-2.parquet", "s-2-of-2.parquet"]


def test_names_sort_as_the_shards_do(bench: Bench) -> None:
    data = numbered(bench, 12)
    bench.scored(data, "shard=3/12")
    assert (bench.folder / "s-03-of-12.jsonl").exists()


@pytest.mark.parametrize(
    ("shard", "words"),
    [
        ("0/4", "shard=1/4 to shard=4/4"),
        ("5/4", "shard=1/4 to shard=4/4"),
        ("1/0", "from 1 to n"),
        ("2", "i/n"),
        ("'1/2/3'", "i/n"),
        ("-1/4", "i/n"),
    ],
)
def test_a_shard_that_is_none_is_a_sentence(bench: Bench, shard: str, words: str) -> None:
    data = numbered(bench, 5)
    with pytest.raises(ConfigError, match=words):
        bench.scored(data, f"shard={shard}")


def test_a_shard_without_rows_is_a_sentence(bench: Bench) -> None:
    data = numbered(bench, 2)
    with pytest.raises(DataError, match="fewer readable rows than shards; give a smaller n"):
        bench.scored(data, "shard=3/3")


@pytest.mark.parametrize("by", ["batch", "running"])
def test_what_depends_on_the_batch_is_not_sharded(bench: Bench, by: str) -> None:
    transform = f"reward.transforms.length={{kind: standardize, by: {by}}}"
    with pytest.raises(ConfigError, match=r"shard=1/2: some transforms depend on the other rows"):
        bench.scored(numbered(bench, 4), transform, "shard=1/2")
