"""What whole runs write to the console and to their files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.inputs import rule, write_lines
from tests.test_logs import ROOT, messages

LENGTH = rule('return None if "silent" in solution_str else float(len(solution_str))')


def score(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """`python -m rmrl.main_score` on three rows with a rule."""
    (folder / "length.py").write_text(LENGTH)
    rows = [{"prompt": f"q{i}", "response": text} for i, text in enumerate(("a", "bb", "silent"))]
    write_lines(folder / "rows.jsonl", rows)
    command = [
        *(sys.executable, "-m", "rmrl.main_score", "reward.models=[length]"),
        *(f"reward.functions_dir={folder}", "reward.rule_workers=1", "reward.max_missing=0.1"),
        *(f"data.files={folder}/rows.jsonl", f"out={folder}/out.jsonl", *overrides),
    ]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.alone
def test_scoring_keeps_its_messages_beside_its_output(tmp_path: Path) -> None:
    done = score(tmp_path)
    assert done.returncode == 0, done.stderr
    rows = messages(tmp_path / "out.jsonl.log")
    texts = [row[2] for row in rows]
    assert rows[0] == (
        "INFO",
        "rmrl.commands.command",
        "checking the configuration, the data and the rewards",
    )
    assert "3 rows with 3 responses to score" in texts
    assert f"wrote {tmp_path}/out.jsonl: 3 rows, 3 responses" in texts
    (budget,) = [row for row in rows if "more verdicts are missing than allowed" in row[2]]
    assert budget[:2] == ("WARNING", "rmrl.offline.score")
    assert "[rmrl] warning: more verdicts are missing than allowed" in done.stderr
    quiet = score(tmp_path, "overwrite=true", "trainer.log_level=warning")
    assert all("warning: " in line for line in quiet.stderr.splitlines() if "[rmrl]" in line)
    again = [row[2] for row in messages(tmp_path / "out.jsonl.log")]
    assert again[: len(texts)] == texts
    assert again.count("3 rows with 3 responses to score") == 2


@pytest.mark.alone
def test_a_level_that_is_none_is_refused(tmp_path: Path) -> None:
    done = score(tmp_path, "trainer.log_level=warn")
    assert done.returncode == 2
    assert "trainer.log_level='warn': not a choice; did you mean 'warning'?" in done.stderr
    assert not (tmp_path / "out.jsonl.log").exists()
