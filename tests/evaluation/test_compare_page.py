"""The commands of docs/comparing.md run as they stand, one after the other."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from rmrl.cli import main
from rmrl.evaluation.compare.difference import FIGURES
from tests.docs_pages import DOCS
from tests.evaluation.test_compare import LENGTH, ROWS, VOWELS
from tests.inputs import write_lines

PAGE = (DOCS / "comparing.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"^```bash\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward_functions").mkdir()
    (tmp_path / "reward_functions" / "helpful.py").write_text(LENGTH)
    (tmp_path / "reward_functions" / "short.py").write_text(VOWELS)
    (tmp_path / "a.yaml").write_text("models: [helpful]\nmax_missing: 1\n")
    (tmp_path / "b.yaml").write_text("reward: {models: [short]}\n")
    write_lines(tmp_path / "responses.jsonl", ROWS)
    figures: list[str] = []
    for line in BLOCK.splitlines():
        words = shlex.split(line)
        assert words[0] == "rmrl"
        assert main([*words[1:], "trainer.device=cpu"]) == 0, line
        report = json.loads((tmp_path / "runs" / "compare" / "comparison.json").read_text())
        figures.append(report["figure"])
    assert figures == ["mean", "pairs", "best"]


def test_every_figure_stands_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert sorted(rows) == sorted(FIGURES)
