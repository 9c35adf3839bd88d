"""Learning rates by hand."""

from __future__ import annotations

import pytest

from rmrl.backends.schedule import learning_rate
from rmrl.config.schema import OptimConfig
from rmrl.errors import ConfigError


def rates(total: int, **settings: object) -> list[float]:
    return [
        learning_rate(step, optim=OptimConfig(lr=1.0, **settings), total_steps=total)
        for step in range(total)
    ]


def test_constant():
    assert rates(3) == [1, 1, 1]


def test_warmup_loses_no_step():
    assert rates(6, lr_warmup_steps=4) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_warmup_ratio():
    assert rates(8, lr_warmup_steps_ratio=0.25) == [0.5, 1, 1, 1, 1, 1, 1, 1]


def test_linear_reaches_the_floor_after_the_last_step():
    assert rates(4, lr_scheduler_type="linear") == [1, 0.75, 0.5, 0.25]
    assert learning_rate(
        9, optim=OptimConfig(lr=1.0, lr_scheduler_type="linear", min_lr_ratio=0.1), total_steps=4
    ) == pytest.approx(0.1)


def test_cosine_is_halfway_at_half():
    assert rates(
        5, lr_scheduler_type="cosine", lr_warmup_steps=1, min_lr_ratio=0.5
    ) == pytest.approx([1, 1, 0.9267767, 0.75, 0.5732233])


def test_unknown_schedule():
    with pytest.raises(ConfigError, match="did you mean 'cosine'"):
        rates(1, lr_scheduler_type="cosin")
