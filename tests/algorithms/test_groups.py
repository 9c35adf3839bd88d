"""Group statistics: by id alone, unbiased, exactly zero without contrast."""

from __future__ import annotations

import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmrl.algorithms.groups import constant_fraction, group_mean, group_statistics


def test_interleaved_groups_of_different_size() -> None:
    group = group_statistics(
        torch.tensor([1.0, 10.0, 3.0, 14.0, 2.0]), torch.tensor([7, -1, 7, -1, 7])
    )
    assert group.mean_B.tolist() == [2, 12, 2, 12, 2]
    assert group.centred_B.tolist() == [-1, -2, 1, 2, 0]
    # (1 + 1 + 0) / 2 = 1;  (4 + 4) / 1 = 8
    torch.testing.assert_close(
        group.std_B, torch.tensor([1, 8**0.5, 1, 8**0.5, 1], dtype=torch.float64)
    )
    assert group.count_B.tolist() == [3, 2, 3, 2, 3]
    assert not group.constant_B.any()


def test_one_row_and_equal_rows_have_no_contrast() -> None:
    group = group_statistics(torch.tensor([5.0, 2.0, 2.0, 0.0, 1.0]), torch.tensor([0, 1, 1, 2, 2]))
    assert group.constant_B.tolist() == [True, True, True, False, False]
    assert group.centred_B.tolist() == [0, 0, 0, -0.5, 0.5]
    assert group.std_B[:3].tolist() == [0, 0, 0]
    assert constant_fraction(group) == pytest.approx(2 / 3)


@pytest.mark.parametrize("offset", [0.0, 0.3, 1e3, -1e6])
def test_rounding_noise_is_no_contrast(offset: float) -> None:
    row = torch.tensor(offset, dtype=torch.float32)
    above = torch.nextafter(row, torch.tensor(float("inf")))
    group = group_statistics(torch.stack([row, above, row]), torch.zeros(3, dtype=torch.long))
    assert group.centred_B.tolist() == [0, 0, 0]
    assert group.std_B.tolist() == [0, 0, 0]


def test_small_real_contrast_is_kept() -> None:
    group = group_statistics(torch.tensor([1.0, 1.0001]), torch.zeros(2, dtype=torch.long))
    assert not group.constant_B.any()


def test_empty_batch() -> None:
    group = group_statistics(torch.zeros(0), torch.zeros(0, dtype=torch.long))
    assert all(field.shape == (0,) for field in group)
    assert constant_fraction(group) == 0.0


def test_group_mean() -> None:
    assert group_mean(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([3, 0, 3])).tolist() == [3, 2, 3]


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 1000))
def test_agrees_with_the_standard_library_in_any_order(
    rows: list[tuple[int, int]], seed: int
) -> None:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
    rows = [rows[i] for i in order]
    group = group_statistics(
        torch.tensor([float(v) for _, v in rows]), torch.tensor([g for g, _ in rows])
    )
    for i, (gid, value) in enumerate(rows):
        members = [v for g, v in rows if g == gid]
        assert group.centred_B[i].item() == pytest.approx(
            value - statistics.fmean(members), abs=1e-9
        )
        expected = statistics.stdev(members) if len(members) > 1 else 0.0
        assert group.std_B[i].item() == pytest.approx(expected, abs=1e-9)
