"""Which groups have contrast."""

from __future__ import annotations

import torch

from rmrl.algorithms.filters import informative_groups


def test_groups_with_contrast_whatever_their_order_and_size():
    values_B = torch.tensor([1.0, 0.0, 1.0, 0.5, 1.0, 1.0], dtype=torch.float64)
    found_B = informative_groups(values_B, torch.tensor([4, 9, 4, 9, 2, 4]))
    assert found_B.dtype == torch.bool
    assert found_B.tolist() == [False, True, False, True, False, False]  # the group of one has none


def test_rounding_is_no_contrast():
    values_B = torch.tensor([0.3, 0.1 + 0.2, 0.3, 0.31], dtype=torch.float64)
    assert informative_groups(values_B, torch.tensor([0, 0, 1, 1])).tolist() == [False, False, True, True]


def test_no_rows():
    assert informative_groups(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)
