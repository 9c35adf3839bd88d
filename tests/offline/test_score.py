"""Rows in, rows with scores out: which columns, in which order, and what is left when a job breaks off."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.cluster.fake import FakeHost
from rmrl.errors import EngineLostError, MissingVerdictsError
from rmrl.offline.check import CheckedScoring
from rmrl.offline.score import score_files
from rmrl.offline.summary import Summary
from tests.offline.conftest import Bench


async def score(bench: Bench, checked: CheckedScoring, host: FakeHost | None = None) -> Summary:
    scorer = bench.scorer(checked, host)
    try:
        return await score_files(checked, scorer, notice=bench.notices.append)
    finally:
        await scorer.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_every_row_gets_its_columns(bench: Bench) -> None:
    bench.rows("four", "silent", "", fold=3)
    summary = await score(
        bench, bench.checked(f"data.files={bench.folder}/rows.jsonl", f"out={bench.folder}/s.jsonl", "reward.max_missing=1")
    )
    first, silent, empty = lines(bench.folder / "s.jsonl")
    assert first == {
        "prompt": "question 0",
        "response": "four",
        "fold": 3,
        "reward": 0.4,  # 4 characters / 10
        "score_length": 0.4,
        "status_length": "ok",
        "detail_length": "",
        "extra_length": '{"first": "f"}',
    }
    assert (silent["reward"], silent["score_length"], silent["extra_length"]) == (None, None, None)
    assert silent["status_length"] != "ok"
    assert silent["detail_length"]
    assert (empty["reward"], empty["extra_length"]) == (0.0, None)
    assert (summary.rows, summary.kept) == (3, 2)
    assert not (bench.folder / "s.jsonl.partial").exists()


async def test_a_rule_a_judge_and_a_scalar_model(bench: Bench) -> None:
    bench.rows("one two", "abc")
    checked = bench.checked(
        f"data.files={bench.folder}/rows.jsonl",
        f"out={bench.folder}/s.parquet",
        "reward.models=[length,judge,quality]",
        "reward.weights=[1.0,0.5,0.25]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        f"reward.specs.quality.path={bench.folder}/scalar-model",
        "reward.specs.quality.engine.kwargs.value=-2.0",
    )
    await score(bench, checked)
    rows = pq.read_table(bench.folder / "s.parquet").to_pylist()
    assert all(row["score_judge"] in range(10) for row in rows)  # an unscripted fake judge says a digit
    assert [row["score_length"] for row in rows] == [0.7, 0.3]
    assert [row["score_quality"] for row in rows] == [-2.0, -2.0]
    for row in rows:
        assert row["status_judge"] == "ok"
        assert row["reward"] == pytest.approx(row["score_length"] + 0.5 * row["score_judge"] - 0.5, rel=1e-12)


async def test_lists_stay_lists_and_types_are_those_of_the_file(bench: Bench) -> None:
    when = pa.array([None, 1_700_000_000_000_000_000], pa.timestamp("ns"))
    table = pa.table({"prompt": ["q", "r"], "responses": [["four", "a", ""], ["ab"]], "when": when, "late": pa.nulls(2, pa.int32())})
    pq.write_table(table, bench.folder / "rows.parquet")
    summary = await score(bench, bench.checked(f"data.files={bench.folder}/rows.parquet", f"out={bench.folder}/s.parquet"))
    scored = pq.read_table(bench.folder / "s.parquet")
    assert scored.select(table.column_names).equals(table)
    assert scored["reward"].to_pylist() == [[0.4, 0.1, 0.0], [0.2]]
    assert scored["status_length"].to_pylist() == [["ok"] * 3, ["ok"]]
    assert scored["extra_length"].to_pylist() == [['{"first": "f"}', '{"first": "a"}', None], ['{"first": "a"}']]
    assert summary.rows == 4


async def test_several_files_in_their_order_and_batches_of_any_size(bench: Bench) -> None:
    one, two = bench.rows("a", "bb", "ccc", name="one.jsonl"), bench.rows("dddd", name="two.jsonl")
    rewards = []
    for size in (1, 3, 100):
        out = bench.folder / f"s{size}.jsonl"
        await score(bench, bench.checked(f"data.files=[{one},{two}]", f"out={out}", f"data.batch_size={size}"))
        rewards.append([row["reward"] for row in lines(out)])
    assert rewards == [[0.1, 0.2, 0.3, 0.4]] * 3


async def test_what_was_scored_before_an_engine_died_is_kept(bench: Bench) -> None:
    bench.rows("a", "b", "c", "d")
    checked = bench.checked(
        f"data.files={bench.folder}/rows.jsonl",
        f"out={bench.folder}/s.parquet",
        "data.batch_size=1",
        "reward.models=[quality]",
        f"reward.specs.quality.path={bench.folder}/scalar-model",
        "reward.specs.quality.engine.kwargs.value=1.0",
    )
    # the first process: "start", one batch, dead in the second; what replaces it starts and dies in the same batch
    with pytest.raises(EngineLostError):
        await score(bench, checked, FakeHost(deaths={0: 3, 1: 2}))
    assert pq.read_table(bench.folder / "s.parquet.partial")["reward"].to_pylist() == [1.0]
    assert not (bench.folder / "s.parquet").exists()
    assert f"the 1 rows scored so far are in {bench.folder}/s.parquet.partial" in bench.notices


async def test_too_many_missing_verdicts_stop_the_job(bench: Bench) -> None:
    bench.rows("a", "b", "silent", "silent")
    with pytest.raises(MissingVerdictsError):
        await score(bench, bench.checked(f"data.files={bench.folder}/rows.jsonl", f"out={bench.folder}/s.jsonl", "data.batch_size=2"))
    assert [row["reward"] for row in lines(bench.folder / "s.jsonl.partial")] == [0.1, 0.1]


async def test_a_job_that_is_cancelled_leaves_what_it_has(bench: Bench) -> None:
    (bench.folder / "functions" / "slow.py").write_text(
        "import time\ndef compute_score(data_source, solution_str, ground_truth):\n    time.sleep(float(solution_str))\n    return 1.0\n"
    )
    bench.rows("0", "30")
    checked = bench.checked(
        f"data.files={bench.folder}/rows.jsonl", f"out={bench.folder}/s.jsonl", "data.batch_size=1", "reward.models=[slow]"
    )
    job = asyncio.ensure_future(score(bench, checked))
    partial = bench.folder / "s.jsonl.partial"
    for _ in range(200):
        await asyncio.sleep(0.05)
        if partial.exists() and partial.read_text():
            break
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert len(lines(partial)) == 1


async def test_the_same_numbers_with_groups_kept_whole(bench: Bench) -> None:
    rows = [{"prompt": f"q{i // 2}", "response": "x" * (i + 1)} for i in range(6)]
    path = bench.folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    transform = "reward.transforms.length={kind: standardize, by: group}"
    rewards = []
    for size in (1, 100):
        checked = bench.checked(f"data.files={path}", f"out={bench.folder}/g{size}.jsonl", f"data.batch_size={size}", transform)
        assert checked.whole_groups
        await score(bench, checked)
        rewards.append([row["reward"] for row in lines(bench.folder / f"g{size}.jsonl")])
    assert rewards[0] == rewards[1]
    assert all(low < 0 < high for low, high in zip(rewards[0][::2], rewards[0][1::2], strict=True))
