"""What decides how rollout engines are started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmrl.config.schema import Config
from rmrl.inference.reward_engine_base import POLICY_ENGINE
from rmrl.trainer.start_rollouts import draws_unfiltered


@pytest.mark.parametrize(
    ("training", "validation", "engine", "unfiltered"),
    [
        ({}, {}, "vllm", True),
        ({"top_p": 0.9}, {}, "vllm", False),
        ({"top_k": 20}, {}, "vllm", False),
        ({}, {"top_p": 0.7, "do_sample": True}, "vllm", False),
        ({}, {"top_p": 0.7, "do_sample": False}, "vllm", True),
        ({}, {}, POLICY_ENGINE, False),
    ],
)
def test_filters_of_training_validation_and_of_a_policy_that_judges_count(
    training: dict[str, Any], validation: dict[str, Any], engine: str, unfiltered: bool
) -> None:
    config = Config()
    rollout = config.actor_rollout_ref.rollout
    for name, value in training.items():
        setattr(rollout, name, value)
    for name, value in validation.items():
        setattr(rollout.val_kwargs, name, value)
    checked: Any = SimpleNamespace(
        config=config, engines=(SimpleNamespace(spec=SimpleNamespace(name=engine)),)
    )
    assert draws_unfiltered(checked) is unfiltered
