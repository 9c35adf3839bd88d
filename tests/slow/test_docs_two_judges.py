"""The page "two judges and 20,000 rows" runs as printed, with its models."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path

import pytest

from rmrl.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "two-judges.md"
MODELS = ROOT / ".models"


@pytest.mark.skipif(
    not (MODELS / "ms-marco-minilm").is_dir() or not (MODELS / "smollm2").is_dir(),
    reason="make models has not run",
)
def test_the_commands_of_the_page_run_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".models").symlink_to(MODELS)
    Path("examples").symlink_to(ROOT / "examples")
    page = PAGE.read_text(encoding="utf-8")
    for name, text in re.findall(r"```yaml\n# (\w+\.yaml)\n(.*?)```", page, re.DOTALL):
        Path(name).write_text(text, encoding="utf-8")
    (block,) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    commands = block.splitlines()
    assert re.findall(r"^rmrl (\w+)", block, re.MULTILINE) == ["check", "score", "show", "compare"]
    for line in commands:
        assert main(shlex.split(line)[1:]) == 0, line
    shown = capsys.readouterr().out
    assert "1,000 responses like these" in shown
    rows = [json.loads(line) for line in Path("runs/two.jsonl").read_text().splitlines()]
    assert len(rows) == 6
    for row in rows:
        assert row["status_relevance"] == row["status_kind"] == ["ok"] * 3
        for total, first, second in zip(
            row["reward"], row["score_relevance"], row["score_kind"], strict=True
        ):
            assert total == pytest.approx(0.7 / (1 + math.exp(-first)) + 0.3 * second)
    assert Path("runs/one-or-two/comparison.json").is_file()
