"""A user's own combiner and transform, named as package.module:name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rmrl.config.schema.reward import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.combine import CombineInputs, combine_problems
from rmrl.rewards.response_facts import Rows
from rmrl.rewards.transforms import parse_transforms
from tests.rewards.combine.parts import rewards_of, spec


def first_present(inputs: CombineInputs, *, settings: RewardConfig) -> np.ndarray:
    """The first score a row has."""
    first = inputs.present_NC.argmax(axis=1)
    return np.take_along_axis(inputs.values_NC, first[:, None], axis=1)[:, 0]


@dataclass(frozen=True, kw_only=True)
class Power:
    exponent: int

    example = "{kind: 'tests.rewards.combine.test_own_parts:Power', exponent: 2}"
    per_value = True

    def problems(self) -> list[str]:
        return [] if self.exponent > 0 else [f"exponent={self.exponent}: must be greater than 0"]

    def apply(self, values_N: np.ndarray, rows: Rows) -> np.ndarray:
        return values_N**self.exponent


def test_an_own_combiner():
    how = "tests.rewards.combine.test_own_parts:first_present"
    assert combine_problems(RewardConfig(models=["a"], combine=how), ["a"]) == []
    assert rewards_of([spec("a"), spec("b")], ["skipped", 2.0], [3.0, 4.0], how=how) == [3.0, 2.0]


def test_an_own_transform():
    kind = "tests.rewards.combine.test_own_parts:Power"
    assert rewards_of([spec("a", transforms=({"kind": kind, "exponent": 3},))], [2.0]) == [8.0]
    with pytest.raises(ConfigError, match="exponent=0: must be greater than 0"):
        parse_transforms({"kind": kind, "exponent": 0}, "t")
    with pytest.raises(ConfigError, match="is not a transform"):
        parse_transforms("tests.rewards.combine.test_own_parts:first_present", "t")
