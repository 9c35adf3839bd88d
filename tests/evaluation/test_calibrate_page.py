"""The commands of docs/calibration.md run as they stand, one after the other."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from rmrl.cli import main
from tests.docs_pages import DOCS
from tests.evaluation.test_calibrate import DIGITS, labelled
from tests.inputs import write_lines

PAGE = (DOCS / "calibration.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"^```bash\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward_functions").mkdir()
    (tmp_path / "reward_functions" / "helpful.py").write_text(DIGITS)
    rows = [{**row, "good": row["label"]} for row in labelled()]
    write_lines(tmp_path / "labelled.jsonl", rows)
    write_lines(
        tmp_path / "scored.jsonl",
        [{**row, "score_helpful": float(row["response"])} for row in rows],
    )
    for line in BLOCK.splitlines():
        words = shlex.split(line)
        assert words[0] == "rmrl"
        assert main([*words[1:], "trainer.device=cpu"]) == 0, line
    first = (tmp_path / "runs" / "calibration" / "helpful.json").read_text()
    assert (tmp_path / "runs" / "from-scored" / "helpful.json").read_text() == first
    lines = (tmp_path / "runs" / "probabilities.jsonl").read_text().splitlines()
    assert all(0 <= json.loads(line)["reward"] <= 1 for line in lines)
