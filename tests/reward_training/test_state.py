"""Which validation of a run counts as its best."""

from __future__ import annotations

import math

import pytest

from rmrl.reward_training.training import State


@pytest.mark.parametrize(
    ("before", "now", "better"),
    [
        ({}, {"accuracy": 0.5}, True),
        ({}, {}, True),
        ({"accuracy": 0.5}, {"accuracy": 0.6}, True),
        ({"accuracy": 0.5}, {"accuracy": 0.5}, False),
        ({"accuracy": 0.5}, {"accuracy": math.nan}, False),
        ({"accuracy": 0.5}, {}, False),
        ({"accuracy": math.nan}, {"accuracy": 0.1}, True),
    ],
)
def test_more_accuracy_is_better_and_anything_is_better_than_nan(
    before: dict[str, float], now: dict[str, float], better: bool
):
    assert State(best_figures=before).is_better(now, "accuracy") == better


def test_less_loss_is_better():
    state = State(best_figures={"loss": 0.5})
    assert state.is_better({"loss": 0.4}, "loss")
    assert not state.is_better({"loss": 0.6}, "loss")
