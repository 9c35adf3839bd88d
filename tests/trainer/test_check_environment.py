"""Whether an environment can play, before anything starts."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from rmrl.environments import source as source_module
from rmrl.errors import ConfigError
from rmrl.rewards.kinds.environment.reward import EnvironmentReward
from rmrl.rewards.kinds.teacher.reward import TeacherReward
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.check_environment import check_opens, environment_problems, task_problems
from rmrl.types import Prompt
from tests.config.test_check import config_with
from tests.environments.conftest import FAKE

ROLLOUT = "actor_rollout_ref.rollout"
PLAYS = {f"{ROLLOUT}.source": "verifiers", f"{ROLLOUT}.verifiers.env": "sums"}
OWN = RewardSpec(
    name="env.right", kind="environment", weight=1.0, options=EnvironmentReward.Options()
)
TEACHER = RewardSpec(name="big", kind="teacher", weight=1.0, options=TeacherReward.Options())


@pytest.mark.parametrize(
    ("changes", "specs", "said"),
    [
        ({}, [OWN], "reward 'env.right' is an environment's own, and none plays the responses"),
        (PLAYS, [TEACHER], "reward 'big' is a teacher"),
        ({f"{ROLLOUT}.verifiers.env": "sums"}, [], "verifiers.env=sums has no effect"),
        ({f"{ROLLOUT}.source": "verifiers"}, [], "source=verifiers needs an environment"),
        (
            {**PLAYS, f"{ROLLOUT}.verifiers.python": "/nowhere/python"},
            [],
            "verifiers.python=/nowhere/python: there is no such program",
        ),
        (
            {**PLAYS, f"{ROLLOUT}.verifiers.path": ["/nowhere"]},
            [],
            "verifiers.path: there is no folder /nowhere",
        ),
    ],
)
def test_a_problem_is_one_sentence(changes: dict[str, Any], specs: list[RewardSpec], said: str):
    (problem,) = environment_problems(config_with(**changes), specs)
    assert said in problem


def test_a_whole_setting_has_none(tmp_path: Path):
    python = {f"{ROLLOUT}.verifiers.python": sys.executable}
    config = config_with(**PLAYS, **python, **{f"{ROLLOUT}.verifiers.path": [str(tmp_path)]})
    assert list(environment_problems(config, [OWN])) == []
    assert list(environment_problems(config_with(), [])) == []


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("fake", None),
        ("missing", r"cannot be opened \(ModuleNotFoundError: taskset 'missing' not found\)"),
        ("no_verifiers", "needs verifiers 0.4"),
        ("no_prime", r"cannot be opened \(not authenticated with prime.*subprocess"),
    ],
)
async def test_an_environment_is_opened_before_anything_starts(
    env: str, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(source_module, "PROGRAM", FAKE)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    config = config_with(**{**PLAYS, f"{ROLLOUT}.verifiers.env": env})
    if said is None:
        check_opens(config)
        assert list(tmp_path.iterdir()) == []
    else:
        with pytest.raises(ConfigError, match=said):
            check_opens(config)
        (log,) = tmp_path.iterdir()
        assert log.name.startswith("rmrl-environment-")
    check_opens(config_with())


def test_the_first_row_without_a_task_is_named():
    prompt = Prompt(id="t:0", messages=[{"role": "user", "content": "Q"}], token_ids=(1,))
    task = dataclasses.replace(prompt, extra_info={"task": "{}"})
    rows = [ResponseRow(prompt=each, text="") for each in (task, prompt, prompt)]
    (problem,) = task_problems(config_with(**PLAYS), rows)
    assert "row t:0 has no extra_info.task" in problem
    assert "data_preprocess/verifiers_tasks.py" in problem
    assert list(task_problems(config_with(**PLAYS), rows[:1])) == []
    assert list(task_problems(config_with(), rows)) == []
