"""The order of responses within their group, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rewards.combine.parts import rewards_of, rows, spec


def ordered(*arguments: Any, **more: Any) -> list[float | None]:
    return rewards_of(*arguments, how="lexicographic", **more)


def test_the_second_component_decides_ties_of_the_first():
    specs = [spec("correct"), spec("style")]
    assert ordered(specs, [1, 1, 0, 1], [0.2, 0.9, 1.0, 0.2]) == [0.5, 1.0, 0.0, 0.5]


def test_groups_are_ordered_apart_and_need_not_be_contiguous():
    about = rows(6, groups=[7, 3, 7, 3, 9, 3])
    # group 7: 5 > 4; group 3: 1 < 2 < 3; group 9: alone
    assert ordered([spec("a")], [5, 1, 4, 2, 8, 3], about=about) == [1.0, 0.0, 0.0, 0.5, 0.5, 1.0]


def test_the_sign_of_a_weight_turns_the_order_round_and_zero_watches():
    specs = [spec("watched", 0.0), spec("correct", 1.0), spec("cost", -2.0)]
    columns = ([3, 2, 1], [1, 1, 0], [10, 20, 5])
    assert ordered(specs, *columns) == [1.0, 0.5, 0.0]


def test_tolerance_ties_and_chains():
    specs = [spec("a"), spec("b")]
    columns = ([0.30, 0.38, 0.46, 0.90], [3, 2, 1, 0])
    # the first three are one tie, so b orders them: 0.30 before 0.38 before 0.46; 0.90 stands above
    rewards = ordered(specs, *columns, lexicographic_tolerance=0.1)
    assert rewards == pytest.approx([2 / 3, 1 / 3, 0.0, 1.0])
    # exactly the tolerance ties, though 0.4 - 0.3 > 0.1 in floating point
    assert ordered([spec("a")], [0.3, 0.4], lexicographic_tolerance=0.1) == [0.5, 0.5]


def test_constant_groups_are_in_the_middle():
    assert ordered([spec("a")], [2, 2, 2]) == [0.5, 0.5, 0.5]


def test_masked_rows_take_no_place():
    assert ordered([spec("a")], [1, None, 3]) == [0.0, None, 1.0]


def test_a_component_behind_a_closed_gate_ranks_lowest():
    specs = [spec("correct"), spec("brief", gates=("correct",))]
    # the two wrong ones tie on both keys although they were scored
    assert ordered(specs, [1, 1, 0, 0], [0.1, 0.9, 0.8, 0.2]) == [0.5, 1.0, 0.0, 0.0]
