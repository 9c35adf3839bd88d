"""Settings of `rmrl train-rm` that cannot be what was meant."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from rmrl.config.schema import RewardLossConfig, RewardTrainingConfig
from rmrl.reward_training.check_reward_training import settings_problems
from rmrl.reward_training.objectives import OBJECTIVES


def config_of(objective: str) -> RewardTrainingConfig:
    """A configuration without problems."""
    config = RewardTrainingConfig(objective=objective, out="rm")
    config.data.train_files = "rows.jsonl"
    config.model.path = "base"
    if objective == "critique":
        config.loss.critic = {"path": "judge"}
    return config


@pytest.mark.parametrize("objective", ["process", "decision"])
def test_an_ensemble_wants_one_score_for_each_response(objective: str) -> None:
    config = config_of(objective)
    config.seeds = 2
    config.model.lora_rank = 4
    (problem,) = settings_problems(config)
    assert f"objective={objective}" in problem
    config.merge = "average"
    assert list(settings_problems(config)) == []
    config.seeds = 1
    (problem,) = settings_problems(config)
    assert problem.startswith("merge=average makes one model of several seeds")


def test_a_misspelt_engine_would_be_no_gate() -> None:
    config = config_of("process")
    config.gate.engines = ["hf", "vlm"]
    (problem,) = settings_problems(config)
    assert problem.startswith("gate.engines: nothing named 'vlm'; did you mean 'vllm'")


@pytest.mark.parametrize("objective", ["decisions", "no_such_package:Mine"])
def test_an_objective_that_is_not_there_is_a_problem_of_its_key(objective: str) -> None:
    config = config_of(objective)
    config.trainer.logger = ["jsonl", "mlfow"]
    first, second = settings_problems(config)
    assert first.startswith("objective: ")
    assert second.startswith("trainer.logger: nothing named 'mlfow'; did you mean 'mlflow'")


@pytest.mark.parametrize(
    ("objective", "key", "value"),
    [
        ("bradley_terry", "tie_strength", 1.0),
        ("plackett_luce", "label_smoothing", 0.1),
        ("critique", "head", "variance"),
        ("attributes", "center", 0.1),
        ("process", "draws", 4),
        ("decision", "center", 0.1),
    ],
)
def test_a_setting_of_another_objective_is_refused(objective: str, key: str, value: Any) -> None:
    config = config_of(objective)
    assert list(settings_problems(config)) == []
    setattr(config.loss, key, value)
    (problem,) = settings_problems(config)
    assert problem.startswith(f"loss.{key}: not read by objective={objective}")


def test_a_question_is_for_decisions() -> None:
    for objective in OBJECTIVES:
        config = config_of(objective)
        config.data.question = "The answer is correct."
        problems = list(settings_problems(config))
        expected = [f"data.question: not read by objective={objective}; leave it out"]
        assert problems == ([] if objective == "decision" else expected)


def test_every_setting_of_the_loss_is_read_by_some_objective() -> None:
    read = {key for name in OBJECTIVES for key in OBJECTIVES[name].loss_keys}
    assert read == {field.name for field in fields(RewardLossConfig)}


@pytest.mark.parametrize(
    ("objective", "best_by", "fits"),
    [
        ("bradley_terry", "length_matched", True),
        ("bradley_terry", "brier", False),
        ("decision", "brier", True),
        ("decision", "length_matched", False),
        ("attributes", "loss", True),
        ("attributes", "accuracy", False),
        ("process", "accuracy", True),
    ],
)
def test_the_best_weights_are_chosen_by_a_figure_that_there_is(
    objective: str, best_by: str, fits: bool
) -> None:
    config = config_of(objective)
    config.trainer.best_by = best_by
    problems = list(settings_problems(config))
    assert [best_by in problem for problem in problems] == ([] if fits else [True])
