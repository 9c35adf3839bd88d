"""A resume with another rule, or with other criteria, than the run began with."""

from __future__ import annotations

import json
from pathlib import Path

from rmrl.config.schema import Config, RewardConfig
from rmrl.rewards.entries.resolve import resolve_rewards
from rmrl.rewards.entries.section import Surroundings
from rmrl.rewards.kinds.rubric import find_criteria as reading
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.output_dir import RUN_FILE, claim
from rmrl.trainer.reward_files import changes_since_start

RULE = "def compute_score(data_source, solution_str, ground_truth):\n    return 1.0\n"
SERVER = {"url": "http://127.0.0.1:9/v1", "model": "m"}


def specs_of(folder: Path) -> list[RewardSpec]:
    """A rule, and a judge of the criteria in a file."""
    judge = {
        "kind": "rubric",
        "criteria": str(folder / "criteria.json"),
        "combine": "holistic",
        "server": SERVER,
    }
    resolved = resolve_rewards(
        RewardConfig(models=["right", "judge"], specs={"judge": judge}),
        Surroundings(device="cpu", threads=1, functions_dirs=[folder]),
    )
    assert not resolved.problems
    return resolved.specs


def started(run: Path, folder: Path) -> list[str]:
    """What a start of the run in `run` says, in a process of its own."""
    reading._document.cache_clear()
    with claim(run, config=Config(), config_text="", resume_mode="auto"):
        return changes_since_start(run, specs_of(folder))


def test_a_resume_names_the_rewards_whose_files_were_changed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = tmp_path / "rewards"
    folder.mkdir()
    rule = folder / "right.py"
    criteria = folder / "criteria.json"
    rule.write_text(RULE)
    criteria.write_text(json.dumps(["It is right."]))
    assert started(run, folder) == []
    rule.write_text(RULE.replace("1.0", "2.0"))
    assert started(run, folder) == []  # nothing was trained by the first one

    (run / "checkpoints" / "step_000001").mkdir(parents=True)
    assert started(run, folder) == []
    criteria.write_text(json.dumps(["It is wrong."]))
    (line,) = started(run, folder)
    assert line.startswith("reward 'judge': its file was changed since this run was last started")
    assert started(run, folder) == []  # it was said
    criteria.write_text(json.dumps(["It is long."]))
    rule.write_text(RULE)
    lines = started(run, folder)
    assert [line.partition(" was changed")[0] for line in lines] == [
        "reward 'right': its code",
        "reward 'judge': its file",
    ]


def test_a_run_of_before_has_no_digests_to_compare_with(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = tmp_path / "rewards"
    folder.mkdir()
    (folder / "right.py").write_text(RULE)
    (folder / "criteria.json").write_text(json.dumps(["It is right."]))
    started(run, folder)
    (run / "checkpoints" / "step_000001").mkdir(parents=True)
    known = json.loads((run / RUN_FILE).read_text())
    del known["reward_files"]
    (run / RUN_FILE).write_text(json.dumps(known))
    assert started(run, folder) == []
    assert set(json.loads((run / RUN_FILE).read_text())["reward_files"]) == {"right", "judge"}
