"""Which groups have contrast."""

from __future__ import annotations

import pytest
import torch

from rmrl.algorithms import ADVANTAGES
from rmrl.algorithms.filters import informative_groups
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.types import AdvantageInputs


def test_groups_with_contrast_whatever_their_order_and_size():
    values_B = torch.tensor([1.0, 0.0, 1.0, 0.5, 1.0, 1.0], dtype=torch.float64)
    found_B = informative_groups(values_B, torch.tensor([4, 9, 4, 9, 2, 4]))
    assert found_B.dtype == torch.bool
    assert found_B.tolist() == [False, True, False, True, False, False]  # the group of one has none


def test_rounding_is_no_contrast():
    values_B = torch.tensor([0.3, 0.1 + 0.2, 0.3, 0.31], dtype=torch.float64)
    assert informative_groups(values_B, torch.tensor([0, 0, 1, 1])).tolist() == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e5, 1e7])
@pytest.mark.parametrize("ulps", [1, 3, 4, 5, 6, 8, 16, 32])
def test_the_filter_finds_contrast_exactly_where_the_advantages_do(scale: float, ulps: int):
    """Before, float64 values were compared by float64's rounding here, and by float32's in the
    estimators: chosen groups taught nothing."""
    apart = ulps * scale * 2**-23
    values_B = torch.tensor([scale, scale + apart, scale, scale + apart], dtype=torch.float64)
    ids_B = torch.zeros(4, dtype=torch.long)
    inputs = AdvantageInputs(
        rewards_B=values_B.float(), group_ids_B=ids_B, response_mask_BT=torch.ones(4, 1)
    )
    for name in ("grpo", "rloo", "opo"):
        teaches = bool(
            (ADVANTAGES[name](inputs, settings=AlgorithmConfig()).advantages_BT != 0).any()
        )
        assert bool(informative_groups(values_B, ids_B).any()) == teaches


def test_contrast_that_float32_cannot_hold_is_none():
    values_B = torch.tensor([1000.0, 1000.00001], dtype=torch.float64)
    assert not informative_groups(values_B, torch.zeros(2, dtype=torch.long)).any()


def test_no_rows():
    assert informative_groups(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)
