"""Rows in, rows with scores out: which columns, in which order, and what is left when a job breaks
off."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmrl.errors import EngineLostError
from rmrl.offline.check_scoring import CheckedScoring
from rmrl.offline.scored_responses import responses
from tests.inputs import read_lines, write_lines
from tests.offline.conftest import Bench
from tests.support.fake_processes import FakeHost


def test_every_row_gets_its_columns(bench: Bench) -> None:
    data = bench.rows("four", "silent", "", fold=3)
    summary = bench.scored(data, "reward.max_missing=1")
    first, silent, empty = read_lines(bench.folder / "s.jsonl")
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
    assert [path.name for path in bench.folder.glob("s.jsonl*")] == ["s.jsonl"]


def test_a_rule_gets_a_reference_as_its_row_has_it(bench: Bench) -> None:
    rule = bench.folder / "any_of.py"
    rule.write_text(
        "def compute_score(solution_str, ground_truth):\n"
        "    return float(solution_str in ground_truth['target'])\n"
        "def reward(completions, answer):\n"
        "    return [float(c in a['target']) for c, a in zip(completions, answer)]\n"
    )
    # as verl's rows have it, and as the samples of a run do
    for column in ("reward_model", "ground_truth"):
        truth: Any = {"target": ["Paris", "Lut\u00e8ce"]}
        if column == "reward_model":
            truth = {"ground_truth": truth}
        data = bench.rows("Paris", "Rome", name=f"{column}.jsonl", **{column: truth})
        bench.scored(
            data,
            "reward.models=[one,lists]",
            f"reward.specs.one.function={rule}:compute_score",
            f"reward.specs.lists.function={rule}:reward",
            out=f"{column}-scored.jsonl",
        )
        rows = read_lines(bench.folder / f"{column}-scored.jsonl")
        assert [(row["score_one"], row["score_lists"]) for row in rows] == [(1, 1), (0, 0)]
        first = next(responses(bench.folder / f"{column}-scored.jsonl"))
        assert first.reference == '{"target": ["Paris", "Lut\u00e8ce"]}'


def test_lines_of_json_stay_as_they_were_written(bench: Bench) -> None:
    lines = [
        '{"prompt":"q", "response": "four", "big": 12345678901234567890, "small": 1.50e-7}',
        r'{"prompt": "q", "response": "caf\u00e9 \ud83d", "none": {"a" : NaN}}',
    ]
    file = bench.folder / "rows.jsonl"
    file.write_text("\n\n".join(f"  {line} " for line in lines) + "\r\n")
    bench.scored(file)
    written = (bench.folder / "s.jsonl").read_text().splitlines()
    for line, before in zip(written, lines, strict=True):
        assert line.startswith(f'{before[:-1]}, "reward": ')
    # An added column replaces the input's, and the whole row is written anew.
    bench.scored(bench.folder / "s.jsonl", out="again.jsonl")
    first, _ = read_lines(bench.folder / "again.jsonl")
    assert list(first).count("reward") == 1
    assert (first["big"], first["small"], first["score_length"]) == (
        12345678901234567890,
        1.5e-7,
        0.4,
    )
    assert '"small": 1.5e-07' in (bench.folder / "again.jsonl").read_text()


def test_a_rule_a_judge_and_a_scalar_model(bench: Bench) -> None:
    bench.scored(
        bench.rows("one two", "abc"),
        "reward.models=[length,judge,quality]",
        "reward.weights=[1.0,0.5,0.25]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        f"reward.specs.quality.path={bench.folder}/scalar-model",
        "reward.specs.quality.engine.kwargs.value=-2.0",
        out="s.parquet",
    )
    rows = pq.read_table(bench.folder / "s.parquet").to_pylist()
    # an unscripted fake judge says a digit
    assert all(row["score_judge"] in range(10) for row in rows)
    assert [row["score_length"] for row in rows] == [0.7, 0.3]
    assert [row["score_quality"] for row in rows] == [-2.0, -2.0]
    for row in rows:
        assert row["status_judge"] == "ok"
        assert row["reward"] == pytest.approx(
            row["score_length"] + 0.5 * row["score_judge"] - 0.5, rel=1e-12
        )


def test_a_response_with_a_lone_surrogate_is_scored_into_parquet(bench: Bench) -> None:
    bench.scored(bench.rows("half a \ud83d", "abc"), out="s.parquet")
    rows = pq.read_table(bench.folder / "s.parquet").to_pylist()
    assert [row["response"] for row in rows] == ["half a \ufffd", "abc"]
    assert [row["score_length"] for row in rows] == [0.8, 0.3]  # 8 and 3 characters
    warnings = [notice for notice in bench.notices if "lone surrogate" in notice]
    assert len(warnings) == 1
    assert "in 1 rows of" in warnings[0]


def test_the_tokens_of_half_a_letter_are_counted(bench: Bench) -> None:
    """One token per character, all 9 of them: the penalty is 0.25 for the one over 8."""
    from tests.engine_models import write_tokenizer  # imports torch

    write_tokenizer(bench.folder / "policy")
    bench.scored(
        bench.rows("half a \ud83d."),
        f"data.tokenizer={bench.folder}/policy",
        "reward.transforms.length={kind: length, target: 8, per_token: 0.25}",
    )
    (row,) = read_lines(bench.folder / "s.jsonl")
    assert row["reward"] == pytest.approx(0.9 - 0.25)


def test_lists_stay_lists_and_types_are_those_of_the_file(bench: Bench) -> None:
    when = pa.array([None, 1_700_000_000_000_000_000], pa.timestamp("ns"))
    table = pa.table(
        {
            "prompt": ["q", "r"],
            "responses": [["four", "a", ""], ["ab"]],
            "when": when,
            "late": pa.nulls(2, pa.int32()),
        }
    )
    pq.write_table(table, bench.folder / "rows.parquet")
    summary = bench.scored(bench.folder / "rows.parquet", out="s.parquet")
    scored = pq.read_table(bench.folder / "s.parquet")
    assert scored.select(table.column_names).equals(table)
    assert scored["reward"].to_pylist() == [[0.4, 0.1, 0.0], [0.2]]
    assert scored["status_length"].to_pylist() == [["ok"] * 3, ["ok"]]
    assert scored["extra_length"].to_pylist() == [
        ['{"first": "f"}', '{"first": "a"}', None],
        ['{"first": "a"}'],
    ]
    assert summary.rows == 4


def test_several_files_in_their_order_and_batches_of_any_size(bench: Bench) -> None:
    one, two = bench.rows("a", "bb", "ccc", name="one.jsonl"), bench.rows("dddd", name="two.jsonl")
    rewards = []
    for size in (1, 3, 100):
        out = bench.folder / f"s{size}.jsonl"
        bench.score(
            bench.checked(f"data.files=[{one},{two}]", f"out={out}", f"data.batch_size={size}")
        )
        rewards.append([row["reward"] for row in read_lines(out)])
    assert rewards == [[0.1, 0.2, 0.3, 0.4]] * 3


def test_what_was_scored_before_an_engine_died_is_kept_and_not_scored_again(bench: Bench) -> None:
    bench.rows("a", "b", "c", "d")

    def checked() -> CheckedScoring:
        return bench.checked(
            f"data.files={bench.folder}/rows.jsonl",
            f"out={bench.folder}/s.parquet",
            "data.batch_size=1",
            "reward.models=[quality]",
            f"reward.specs.quality.path={bench.folder}/scalar-model",
            "reward.specs.quality.engine.kwargs.value=1.0",
        )

    # the first process: "start", one batch, dead in the second; what replaces it starts and dies in
    # the same batch
    with pytest.raises(EngineLostError):
        bench.score(checked(), FakeHost(deaths={0: 3, 1: 2}))
    assert not (bench.folder / "s.parquet").exists()
    assert (
        f"1 of 4 rows are scored and kept in {bench.folder}/s.parquet.parts; the same command goes"
        " on from there" in bench.notices
    )
    # dies before its fourth batch: only three were left
    bench.score(checked(), FakeHost(deaths={0: 5, 1: 1}))
    assert pq.read_table(bench.folder / "s.parquet")["reward"].to_pylist() == [1.0] * 4
    assert not (bench.folder / "s.parquet.parts").exists()


def test_an_engine_that_dies_at_once_leaves_nothing(bench: Bench) -> None:
    bench.rows("a")
    model = f"reward.specs.quality.path={bench.folder}/scalar-model"
    checked = bench.checked(
        f"data.files={bench.folder}/rows.jsonl",
        f"out={bench.folder}/s.jsonl",
        "reward.models=[quality]",
        model,
    )
    with pytest.raises(EngineLostError):
        bench.score(checked, FakeHost(deaths={0: 2, 1: 2}))
    assert "no row was scored; nothing was written" in bench.notices
    assert not list(bench.folder.glob("s.jsonl*"))


def test_the_same_numbers_with_groups_kept_whole(bench: Bench) -> None:
    rows = [{"prompt": f"q{i // 2}", "response": "x" * (i + 1)} for i in range(6)]
    path = write_lines(bench.folder / "pairs.jsonl", rows)
    transform = "reward.transforms.length={kind: standardize, by: group}"
    rewards = []
    for size in (1, 100):
        checked = bench.checked(
            f"data.files={path}",
            f"out={bench.folder}/g{size}.jsonl",
            f"data.batch_size={size}",
            transform,
        )
        assert checked.whole_groups
        bench.score(checked)
        rewards.append([row["reward"] for row in read_lines(bench.folder / f"g{size}.jsonl")])
    assert rewards[0] == rewards[1]
    assert all(low < 0 < high for low, high in zip(rewards[0][::2], rewards[0][1::2], strict=True))


def test_what_a_judge_read_and_wrote_on_request(bench: Bench) -> None:
    data = bench.rows(["one two", "abc"], ["d"])
    bench.scored(
        data,
        "columns=[raw,rendered]",
        "reward.models=[length,judge]",
        f"reward.specs.judge.path={bench.folder}/judge-model",
        "reward.specs.judge.engine.kwargs.text=7",
        out="s.parquet",
    )
    rows = pq.read_table(bench.folder / "s.parquet").to_pylist()
    assert [row["raw_judge"] for row in rows] == [["7", "7"], ["7"]]
    assert ["abc" in text for text in rows[0]["rendered_judge"]] == [False, True]
    assert [row["raw_length"] for row in rows] == [["", ""], [""]]
    bench.scored(data, out="plain.jsonl")
    for row in read_lines(bench.folder / "plain.jsonl"):
        assert not any(name.startswith(("raw", "rendered")) for name in row)


def test_the_same_numbers_with_groups_shuffled_and_rows_in_their_own_order(bench: Bench) -> None:
    rows = [{"prompt": f"q{i // 4}", "response": "x" * (i * i % 11 + 1)} for i in range(40)]
    order = list(range(40))
    random.Random(0).shuffle(order)
    transform = "reward.transforms.length={kind: standardize, by: group}"
    scored = {}
    for name, numbers in (("neat", range(40)), ("shuffled", order)):
        path = write_lines(bench.folder / f"{name}.jsonl", [{**rows[i], "i": i} for i in numbers])
        bench.scored(path, "data.batch_size=8", transform, out=f"s-{name}.jsonl")
        scored[name] = read_lines(bench.folder / f"s-{name}.jsonl")
    assert [row["i"] for row in scored["shuffled"]] == order
    neat = {row["i"]: row["reward"] for row in scored["neat"]}
    # rounding alone: the sum over a group is taken in the order of its rows
    assert [row["reward"] for row in scored["shuffled"]] == pytest.approx(
        [neat[i] for i in order], abs=1e-12
    )
    assert len({row["reward"] for row in scored["neat"]}) > 10
    assert any(
        "the rows of some of the 10 groups are not consecutive" in text for text in bench.notices
    )


def test_a_group_of_one_is_said_where_responses_are_compared(bench: Bench) -> None:
    files = f"data.files={bench.rows('a', 'bb', ['ccc', 'd'])}"
    bench.checked(files, f"out={bench.folder}/s.jsonl")
    assert not any("groups" in text for text in bench.notices)
    bench.checked(
        files,
        f"out={bench.folder}/s.jsonl",
        "reward.transforms.length={kind: standardize, by: group}",
    )
    said = [text for text in bench.notices if "hold one response" in text]
    assert len(said) == 1
    assert said[0].startswith("2 of 3 groups hold one response")


def test_groups_over_several_files_are_said(bench: Bench) -> None:
    one, two = bench.rows("a", name="one.jsonl"), bench.rows("bb", name="two.jsonl")
    bench.checked(
        f"data.files=[{one},{two}]", f"out={bench.folder}/s.jsonl", "reward.combine=lexicographic"
    )
    assert any(
        text.startswith("1 of 1 groups have rows in several files") for text in bench.notices
    )
