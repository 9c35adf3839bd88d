"""The page "train a reward model" runs as printed, on a tiny model."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from rmrl.cli import main
from rmrl.config.load import compose_config
from rmrl.config.schema import Config
from tests.slow.reward_training.test_main_rm import pairs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training-rewards.md"


def test_the_commands_of_the_page_run_as_printed(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    (row,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    rows = [json.loads(row), *pairs(60, seed=5)]
    Path("pairs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    answers = {"prompt": "What is 7 + 5?", "responses": ["12", "13"]}
    Path("responses.jsonl").write_text(json.dumps(answers) + "\n")
    Path("base").symlink_to(tiny_llama)
    first, policy = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    for line in first.splitlines():
        assert main(shlex.split(line)[1:]) == 0, line
    scored = json.loads(Path("scored.jsonl").read_text())
    assert len(scored["reward"]) == 2
    named = re.findall(r"^\| `(\w[\w.]*)/?`", page.split("The folder `rm`")[1].split("##")[0], re.M)
    assert named
    for name in named:
        assert (Path("rm") / name).exists(), name
    config = compose_config(shlex.split(policy)[3:], Config)
    assert config.reward.models == ["rm"]
