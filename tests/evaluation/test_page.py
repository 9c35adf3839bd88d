"""The commands of docs/evaluation.md run as they stand, and its table names every format."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rmrl.cli import main
from rmrl.evaluation.formats import FORMATS
from tests.docs_pages import DOCS
from tests.inputs import write_lines

PAGE = (DOCS / "evaluation.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"^```bash\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)

FILES: dict[str, list[dict[str, Any]]] = {
    "pairs.jsonl": [
        {"id": "0", "prompt": "2 + 2?", "chosen": "4", "rejected": "5", "ground_truth": "4"},
        {"id": "1", "prompt": "2 + 3?", "chosen": "6", "rejected": "5", "ground_truth": "5"},
    ],
    "judge_outputs.jsonl": [
        {
            "id": "0", "subset": "Natural", "evaluator": "GPT-4", "mode": "CoT", "label": 1,
            "winner": "1", "winner_swapped": "2",
        },
    ],
    "texts.jsonl": [
        {"id": "0", "judge": "mine", "text": "[[A]]", "text_swapped": "[[B]]"},
        {"id": "1", "judge": "mine", "text": "[[B]]", "text_swapped": "[[B]]"},
    ],
}  # fmt: skip
ACCURACIES = {
    "eval-pairs": ("gsm8k", 0.5),
    "eval-llmbar": ("GPT-4 CoT", 0.5),
    "eval-texts": ("mine", 0.75),
}
"""Folder -> the judge, and its accuracy by hand."""


@pytest.mark.parametrize("command", BLOCK.strip().splitlines())
def test_a_command_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rows in FILES.items():
        write_lines(tmp_path / name, rows)
    given = shlex.split(command)
    assert given[0] == "rmrl"
    assert main(given[1:]) == 0
    out = Path(given[-1].removeprefix("out="))
    report = json.loads((out / "report.json").read_text())
    judge, accuracy = ACCURACIES[out.name]
    assert report["judges"][judge]["accuracy"]["value"] == accuracy


def test_every_format_stands_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert sorted(rows) == sorted(FORMATS)
