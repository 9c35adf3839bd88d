"""HealthBench's records, with the field names of its files, become rows whose criteria a rubric
reward reads."""

from __future__ import annotations

from pathlib import Path

from rmrl.config.schema import DataConfig
from rmrl.data.dataset import iterate_rows
from rmrl.rewards.kinds.rubric.find_criteria import read_criteria
from tests.inputs import write_lines
from tests.scripts import load_script

ROOT = Path(__file__).parents[2]
RECORD = {
    "example_tags": ["theme:emergency_referrals"],
    "ideal_completions_data": None,
    "prompt": [
        {"role": "user", "content": "My chest hurts."},
        {"role": "assistant", "content": "Since when?"},
        {"role": "user", "content": "An hour."},
    ],
    "prompt_id": "p-1",
    "rubrics": [
        {
            "criterion": "Advises to call emergency services now.",
            "points": 9,
            "tags": ["level:example", "axis:completeness"],
        },
        {
            "criterion": "Suggests waiting until tomorrow.",
            "points": -8,
            "tags": ["level:example", "axis:accuracy"],
        },
    ],
    "canary": "none",
}


def test_records_become_rows(tmp_path: Path):
    path = ROOT / "data_preprocess" / "healthbench.py"
    module = load_script(path)
    source = tmp_path / "eval.jsonl"
    records = [
        RECORD,
        {**RECORD, "prompt": [{"role": "user", "content": "Hi"}], "prompt_id": "p-2"},
    ]
    write_lines(source, records)
    out = tmp_path / "out"
    assert module.main(["--source", str(source), "--out", str(out)]) == 0
    rows = list(iterate_rows(DataConfig(train_files=str(out / "train.parquet")), split="train"))
    assert len(rows) == 2
    row = next(row for row in rows if row.extra_info["id"] == "p-1")
    assert [turn["content"] for turn in row.messages] == [
        "My chest hurts.",
        "Since when?",
        "An hour.",
    ]
    assert row.rm_prompts[""] == (
        "user: My chest hurts.\n\nassistant: Since when?\n\nuser: An hour."
    )
    first, second = read_criteria(row.extra_info["rubrics"], where="rubrics")
    assert (first.text, first.weight) == ("Advises to call emergency services now.", 9.0)
    assert (second.weight, second.tags) == (-8.0, ("level:example", "axis:accuracy"))
