"""The commands of docs/scoring.md run as printed, and leave the files that the page names."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from rmrl.cli import main
from rmrl.config.load import shipped

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scoring.md"


def test_the_commands_of_the_page_run_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    for i in range(6):
        # Four responses to each of two prompts with the answer 4; two of them are right.
        row = {"prompt": f"{i % 2} + {4 - i % 2}?", "reward_model": {"ground_truth": "4"}}
        lines.append(json.dumps(row | {"response": f"#### {4 + i // 4}"}))
    Path("responses.jsonl").write_text("\n".join(lines) + "\n")
    Path("collected.jsonl").write_text("\n".join([*lines, "{"]) + "\n")
    (block,) = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    commands = [shlex.split(line) for line in block.splitlines()]
    assert len(commands) == 6
    quick = [
        f"reward.functions_dir={shipped('reward_functions')}",
        "trainer.device=cpu",
        "reward.rule_workers=1",
    ]
    for words in commands:
        assert words[:2] == ["rmrl", "score"]
        assert main([*words[1:], *quick]) == 0, words
    written = {path.name: path for path in tmp_path.iterdir() if path.suffix == ".jsonl"}
    counts = {name: len(path.read_text().splitlines()) for name, path in written.items()}
    assert counts == {
        "responses.jsonl": 6,
        "collected.jsonl": 7,
        "picked.jsonl": 6,
        "picked.best.jsonl": 2,
        "picked.dpo.jsonl": 2,
        "examples.jsonl": 6,
        "examples.best.jsonl": 2,
        "examples.sft.jsonl": 2,
        "usable.jsonl": 6,
        "usable.jsonl.quarantine.jsonl": 1,
        "part-1-of-2.jsonl": 3,
        "part-2-of-2.jsonl": 3,
    }
    assert Path("scored.parquet").stat().st_size > 1000
