"""Weights per row: sources, schedules, parts of ensembles."""

from __future__ import annotations

import numpy as np

from rmrl.rewards.combine import weights_matrix
from rmrl.rewards.combine.schedules import Schedule
from tests.rewards.combine.parts import combined, rewards, rewards_of, rows, spec


def test_weights_by_source():
    specs = [spec("a", 0.3), spec("b", 9.0, sources={"math": 0.5, "code": 2.0})]
    about = rows(3, sources=["math", "chat", "code"])
    np.testing.assert_array_equal(
        weights_matrix(specs, about, step=0, schedules={}), [[0.3, 0.5], [0.3, np.nan], [0.3, 2.0]]
    )


def test_a_component_of_another_source_is_neither_counted_nor_missing():
    specs = [spec("a", 1.0, sources={"math": 1.0}), spec("b", 1.0, "fail", sources={"chat": 2.0})]
    about = rows(3, sources=["math", "chat", "poem"])
    batch = combined(specs, [5.0, None, 5.0], [None, 3.0, 3.0], about=about)
    assert rewards(batch) == [5.0, 6.0, None]  # nobody judges a poem
    assert batch.columns_BC is not None
    np.testing.assert_array_equal(
        batch.columns_BC, [[5.0, np.nan], [np.nan, 3.0], [np.nan, np.nan]]
    )


def test_other_sources_stay_out_of_the_minimum_and_of_the_rescaling():
    specs = [spec("a", sources={"math": 1.0}), spec("b"), spec("c", policy="renormalize")]
    about = rows(2, sources=["math", "chat"])
    assert rewards_of(specs, [-1.0, -1.0], [2.0, 2.0], [3.0, 3.0], how="min", about=about) == [
        -1.0,
        2.0,
    ]
    # c is missing: math has 3 components for 2, chat 2 for 1
    assert rewards_of(specs, [-1.0, -1.0], [2.0, 2.0], [None, None], about=about) == [1.5, 4.0]


def test_a_schedule_replaces_the_weight():
    schedules = {"a": Schedule(((0.0, 0.0), (10.0, 1.0)))}
    batch = combined([spec("a", 7.0), spec("b")], [2.0], [1.0], schedules=schedules, step=5)
    assert rewards(batch) == [2.0]  # 0.5 * 2 + 1
    assert batch.weights_C.tolist() == [0.5, 1.0]


def test_a_schedule_leaves_other_sources_alone():
    specs = [spec("a", sources={"math": 4.0})]
    about = rows(2, sources=["math", "chat"])
    schedules = {"a": Schedule(((0.0, 3.0),))}
    np.testing.assert_array_equal(
        weights_matrix(specs, about, step=1, schedules=schedules), [[3.0], [np.nan]]
    )


def test_parts_of_ensembles_stay_out_of_the_sum():
    specs = [spec("judges"), spec("judge_a", part_of="judges", policy="fail")]
    assert rewards_of(specs, [1.0, 2.0], [50.0, None]) == [1.0, 2.0]


def test_the_weights_reported_are_those_of_the_specs_where_sources_differ():
    specs = [spec("a", 9.0, sources={"math": 1.0, "chat": 2.0})]
    assert combined(
        specs, [1.0, 1.0], about=rows(2, sources=["math", "chat"])
    ).weights_C.tolist() == [9.0]
