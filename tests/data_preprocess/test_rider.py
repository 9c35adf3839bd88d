from __future__ import annotations

import copy
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmrl.config.schema import DataConfig
from rmrl.data.dataset import iterate_rows
from tests.inputs import read_lines
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
TOLD = "【对话】\n骑手：1. 订单要超时了。\n【规则】\n1. 甲\n2. 乙\n【知识】\n1. 丙\n【方案】\n延长时限、无\n"  # noqa: RUF001
TARGET = {
    "Response": "您好",
    "ResponseSolution": "无",
    "DialogueAgreeSolution": "同意",
    "RelevantConstraintRuleNumber": [2],
    "RelevantKnowledgeNumber": [1],
}
RECORD = {"input": TOLD, "grm_input": "案情", "target": TARGET}


@pytest.fixture(scope="module")
def rider() -> ModuleType:
    return load_script(ROOT / "data_preprocess" / "rider.py")


def write(path: Path, *records: dict[str, Any]) -> str:
    path.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records),
        encoding="utf-8",
    )
    return str(path)


def test_two_files_become_two_files_that_load(rider: ModuleType, tmp_path: Path):
    two = [{"role": "system", "content": "规矩"}, {"role": "user", "content": "问"}]
    named = {"rider_reward": "给甲", "consistency_reward": "给乙"}
    train = write(
        tmp_path / "a.jsonl",
        RECORD,
        {**RECORD, "input": two, "grm_input": named, "target": json.dumps(TARGET)},
    )
    test = write(tmp_path / "b.jsonl", RECORD)
    out = tmp_path / "out"
    assert rider.main(["--source", train, "--test-source", test, "--out", str(out)]) == 0
    first, second = iterate_rows(DataConfig(train_files=str(out / "train.parquet")), split="train")
    assert first.messages == ({"role": "user", "content": TOLD},)
    assert first.rm_prompts == {"": "案情"}
    assert json.loads(first.ground_truth or "") == TARGET
    assert (first.data_source, first.ability) == ("rider", "support")
    # The numbered line of the dialogue is none of the rules'.
    assert first.extra_info == {
        "split": "train",
        "index": 0,
        "rules": 2,
        "knowledge": 1,
        "solutions": ["延长时限", "无"],
    }
    assert second.messages == tuple(two)
    assert second.rm_prompts == named
    assert second.extra_info == {
        "split": "train",
        "index": 1,
        "rules": None,
        "knowledge": None,
        "solutions": None,
    }
    assert pq.read_table(out / "test.parquet").num_rows == 1


def test_the_shipped_dialogues_are_split_by_their_text(rider: ModuleType, tmp_path: Path):
    source = ROOT / "examples" / "rider" / "dialogues.jsonl"
    assert rider.main(["--source", str(source), "--out", str(tmp_path)]) == 0
    parts = {
        split: pq.read_table(tmp_path / f"{split}.parquet").to_pylist()
        for split in ("train", "test")
    }
    told = {split: {row["prompt"][-1]["content"] for row in rows} for split, rows in parts.items()}
    assert (
        (len(parts["train"]), len(parts["test"]))
        == (len(told["train"]), len(told["test"]))
        == (41, 7)
    )
    assert not told["train"] & told["test"]
    assert all(
        row["extra_info"]["rules"] == row["extra_info"]["knowledge"] == 3 for row in parts["train"]
    )
    assert {"rm_prompt_rider_reward", "rm_prompt_consistency_reward"} <= set(parts["train"][0])
    doubled = write(
        tmp_path / "doubled.jsonl",
        *read_lines(source) * 2,
    )
    assert rider.main(["--source", doubled, "--out", str(tmp_path / "twice")]) == 0
    assert pq.read_table(tmp_path / "twice" / "test.parquet").num_rows == 14


def test_existing_files_are_left_alone(
    rider: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source = write(tmp_path / "a.jsonl", RECORD)
    args = ["--source", source, "--test-source", source, "--out", str(tmp_path / "out")]
    assert rider.main(args) == 0
    assert rider.main(args) == 6
    assert "train.parquet exists already" in capsys.readouterr().err
    assert rider.main([*args, "--overwrite"]) == 0


def spoiled(**changed: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RECORD), **changed}


@pytest.mark.parametrize(
    ("record", "parts"),
    [
        ({"q": 1}, ["saw the fields q, and nothing in input, grm_input, target"]),
        (
            spoiled(grm_input=""),
            ["saw the fields input, grm_input, target, and nothing in grm_input"],
        ),
        (
            spoiled(target={**TARGET, "RelevantConstraintRuleNumber": [3]}),
            ["the target violates the format", "from 1 to 2 only"],
        ),
        (spoiled(target="您好"), ["the target violates the format", "no JSON"]),
        (spoiled(grm_input={"rider reward": "x"}), ["grm_input has the key 'rider reward'"]),
        (spoiled(grm_input={"rider_reward": 3}), ["column 'rm_prompt_rider_reward'"]),
        (spoiled(input=[{"role": "user"}]), ["column 'prompt'"]),
    ],
)
def test_a_malformed_record_is_named_and_nothing_is_written(
    rider: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record: dict[str, Any],
    parts: list[str],
):
    source = write(tmp_path / "a.jsonl", RECORD, record)
    test = write(tmp_path / "b.jsonl", RECORD)
    assert (
        rider.main(["--source", source, "--test-source", test, "--out", str(tmp_path / "out")]) == 6
    )
    message = capsys.readouterr().err
    assert all(part in message for part in ["row 1", *parts]), message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["--test-share", "1.5"], 2, "--test-share 1.5: give a share between 0 and 1"),
        (["--test-share", "0.0000001"], 6, "leaves no test row of 1"),
        (["--source", "gone.jsonl"], 6, "gone.jsonl does not exist"),
    ],
)
def test_arguments(
    rider: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    part: str,
):
    source = write(tmp_path / "a.jsonl", RECORD)
    assert rider.main(["--source", source, "--out", str(tmp_path / "out"), *arguments]) == code
    assert part in capsys.readouterr().err
