"""data.sample: rows drawn at random by a seed, the same ones each time."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.config.schema import ScoreDataConfig
from rmrl.data.rows import read_rows
from rmrl.data.sample import sampled_rows
from rmrl.errors import ConfigError, OutputDirError
from rmrl.offline.job import Job
from tests.inputs import read_lines, write_lines
from tests.offline.conftest import Bench

FIVE_OF_TWENTY = [2, 3, 4, 8, 18]
"""random.Random(1).sample(range(20), 5), in order."""


def rows(count: int = 20, first: int = 0) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for i in range(first, first + count):
        made.append({"prompt": f"q{i}", "response": "x" * (i + 1), "i": i})
    return made


def numbers(path: Path) -> list[int]:
    return [int(row.fields["i"]) for row in read_rows(path)]


def test_the_same_rows_of_every_kind_of_file_into_every_kind(bench: Bench) -> None:
    files = {"jsonl": write_lines(bench.folder / "rows.jsonl", rows())}
    files["parquet"] = bench.folder / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows()), files["parquet"])
    files["csv"] = bench.folder / "rows.csv"
    with files["csv"].open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows()[0]))
        writer.writeheader()
        writer.writerows(rows())
    for kind, path in files.items():
        for suffix in ("jsonl", "parquet", "csv"):
            out = f"of-{kind}.{suffix}"
            summary = bench.scored(path, "data.sample=5", out=out)
            assert summary.rows == 5
            assert numbers(bench.folder / out) == FIVE_OF_TWENTY
    scores = [row["reward"] for row in read_lines(bench.folder / "of-csv.jsonl")]
    assert scores == [0.3, 0.4, 0.5, 0.9, 1.9]


def test_another_seed_draws_others_and_a_large_sample_is_all(bench: Bench) -> None:
    file = write_lines(bench.folder / "rows.jsonl", rows())
    bench.scored(file, "data.sample=5", "data.seed=2", out="other.jsonl")
    assert numbers(bench.folder / "other.jsonl") != FIVE_OF_TWENTY
    bench.scored(file, "data.sample=21", out="all.jsonl")
    assert numbers(bench.folder / "all.jsonl") == list(range(20))
    bench.scored(file, "data.sample=5", "data.max_rows=6", out="first.jsonl")
    drawn = numbers(bench.folder / "first.jsonl")
    assert len(drawn) == 5
    assert max(drawn) < 6
    with pytest.raises(ConfigError, match=r"data\.sample"):
        bench.scored(file, "data.sample=0", out="none.jsonl")
    with pytest.raises(ConfigError, match=r"data\.sample=-1"):
        bench.scored(file, "data.sample=-1", out="none.jsonl")


def test_every_row_is_drawn_as_often_as_others(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "rows.jsonl", rows(8))
    counts = np.zeros(8)
    for seed in range(400):
        (drawn,) = sampled_rows(ScoreDataConfig(sample=2, seed=seed), [file])
        assert drawn is not None
        counts += drawn
    # 100 each are expected, with a standard deviation of 8.7
    assert counts.sum() == 800
    assert np.abs(counts - 100).max() < 35


def test_rows_that_are_not_drawn_are_not_read(bench: Bench) -> None:
    file = write_lines(bench.folder / "rows.jsonl", rows())
    lines = file.read_text().splitlines()
    for number in range(20):
        if number not in FIVE_OF_TWENTY:
            lines[number] = "not JSON"
    file.write_text("\n".join(lines) + "\n")
    bench.scored(file, "data.sample=5")
    assert numbers(bench.folder / "s.jsonl") == FIVE_OF_TWENTY


def test_bad_rows_that_are_drawn_go_to_quarantine(bench: Bench) -> None:
    file = write_lines(bench.folder / "rows.jsonl", rows())
    lines = file.read_text().splitlines()
    lines[4] = "not JSON"
    lines[5] = "not JSON, and not drawn"
    file.write_text("\n".join(lines) + "\n")
    summary = bench.scored(file, "data.sample=5", "data.on_bad_row=quarantine")
    assert numbers(bench.folder / "s.jsonl") == [2, 3, 8, 18]
    (bad,) = read_lines(bench.folder / "s.jsonl.quarantine.jsonl")
    assert (bad["row"], bad["text"].strip()) == (4, "not JSON")
    assert (summary.rows_read, summary.quarantined) == (5, 1)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_sample_of_several_files_in_shards(bench: Bench, suffix: str) -> None:
    files = []
    for part, (first, count) in enumerate([(0, 3), (3, 1), (4, 16)]):
        files.append(str(write_lines(bench.folder / f"rows{part}.jsonl", rows(count, first))))
    drawn: list[int] = []
    for shard in ("1/2", "2/2"):
        checked = bench.checked(
            f"data.files=[{','.join(files)}]",
            f"out={bench.folder}/s.{suffix}",
            "data.sample=5",
            f"shard={shard}",
        )
        bench.score(checked)
        drawn += numbers(bench.folder / f"s-{shard.replace('/', '-of-')}.{suffix}")
    assert sorted(drawn) == FIVE_OF_TWENTY
    assert drawn == [2, 4, 18, 3, 8]


def test_a_job_that_broke_off_goes_on_with_the_same_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_lines(bench.folder / "rows.jsonl", rows())
    base = (f"data.files={file}", f"out={bench.folder}/s.jsonl", "data.batch_size=1")
    added = Job.add

    def stops(job: Job, *arguments: Any, **named: Any) -> None:
        added(job, *arguments, **named)
        if job.batches_done == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Job, "add", stops)
        with pytest.raises(KeyboardInterrupt):
            bench.score(bench.checked(*base, "data.sample=5"))
    with pytest.raises(OutputDirError, match=r"data\.sample: 5 there, 6 here"):
        bench.score(bench.checked(*base, "data.sample=6"))
    bench.score(bench.checked(*base, "data.sample=5"))
    assert any("resuming: 3 of 5 rows" in notice for notice in bench.notices)
    assert numbers(bench.folder / "s.jsonl") == FIVE_OF_TWENTY
