"""rank and standardize: what depends on the other responses, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmrl.rewards.transforms import chain_of
from tests.rewards.combine.parts import rows
from tests.rewards.transforms.test_chain import apply, run

ROOT = round(0.5**0.5, 9)


BATCH, GROUP = {"kind": "standardize", "by": "batch"}, {"kind": "standardize", "by": "group"}


@pytest.mark.parametrize(
    ("raw", "values", "groups", "expected"),
    [
        ("rank", [3.0, 7.0, 9.0, 7.0], None, [0.0, 0.5, 1.0, 0.5]),
        ("rank", [5.0, 5.0, 8.0], None, [0.25, 0.25, 1.0]),
        ("rank", [10.0, 1.0, 20.0, 2.0, 3.0], [4, 2, 4, 2, 2], [0.0, 0.0, 1.0, 0.5, 1.0]),
        (
            {"kind": "rank", "by": "batch"},
            [10.0, 1.0, 20.0, 2.0, 3.0],
            [4, 2, 4, 2, 2],
            [0.75, 0.0, 1.0, 0.25, 0.5],
        ),
        # constant groups and single rows are in the middle, and rounding is no order
        ("rank", [4.0, 4.0, 9.0], [0, 0, 1], [0.5, 0.5, 0.5]),
        ("rank", [0.1 + 0.2, 0.3], None, [0.5, 0.5]),
        # mean 3, deviations -2 0 2, unbiased std 2
        ({**BATCH, "eps": 0.0}, [1.0, 3.0, 5.0], None, [-1.0, 0.0, 1.0]),
        ({**BATCH, "eps": 2.0}, [1.0, 3.0, 5.0], None, [-0.5, 0.0, 0.5]),
        # group 1: mean 2, std sqrt(2); group 0: mean 15, std sqrt(50)
        ({**GROUP, "eps": 0.0}, [1.0, 10.0, 3.0, 20.0], [1, 0, 1, 0], [-ROOT, -ROOT, ROOT, ROOT]),
    ],
)
def test_ranks_and_standard_scores_by_hand(
    raw: Any, values: list[float], groups: list[int] | None, expected: list[float]
):
    assert run(raw, values, groups=groups) == expected


@pytest.mark.parametrize("by", ["batch", "group"])
def test_standardize_gives_the_same_bits_in_whatever_order_the_rows_come(by: str):
    draw = np.random.default_rng(7)
    values, groups = draw.normal(size=40) / 3, draw.integers(0, 5, size=40)
    chain = chain_of([{"kind": "standardize", "by": by}], "t")
    straight = apply(chain, values, rows(40, groups=groups.tolist()))
    for _ in range(10):
        order = draw.permutation(40)
        mixed = apply(chain, values[order], rows(40, groups=groups[order].tolist()))
        assert mixed.tolist() == straight[order].tolist()


@pytest.mark.parametrize("by", ["batch", "group", "running"])
def test_what_is_constant_up_to_rounding_is_exactly_zero(by: str):
    raw = {"kind": "standardize", "by": by}
    # float32 has 0.06 between neighbours at a million
    for values in ([0.1 + 0.2, 0.3, 0.3], [1e6, 1e6 + 0.1, 1e6], [7.0]):
        assert run(raw, values) == [0.0] * len(values)


def test_running_joins_batches_as_if_they_were_one():
    chain = chain_of([{"kind": "standardize", "by": "running", "eps": 0.0}], "t")
    first = apply(chain, [1.0, 3.0])
    np.testing.assert_allclose(first, [-(0.5**0.5), 0.5**0.5])
    second = apply(chain, [5.0, 11.0])
    # of 1 3 5 11: mean 5, squared deviations 16 4 0 36 = 56, unbiased variance 56 / 3
    np.testing.assert_allclose(second, [0.0, 6 / (56 / 3) ** 0.5])
    assert chain.state_dict() == {"0:standardize": {"count": 4.0, "mean": 5.0, "variance": 14.0}}


def test_running_divides_by_the_spread_and_eps():
    chain = chain_of([{"kind": "standardize", "by": "running", "eps": 2.0}], "t")
    # mean 2, unbiased deviation sqrt(2)
    scores = apply(chain, [1.0, 3.0])
    np.testing.assert_allclose(scores, [-1 / (2**0.5 + 2), 1 / (2**0.5 + 2)])


def test_running_with_decay_forgets():
    chain = chain_of([{"kind": "standardize", "by": "running", "decay": 0.75}], "t")
    means = []
    for values in ([0.0, 2.0], [4.0, 4.0], [3.0, 3.0], [5.0, 5.0], [6.0, 6.0]):
        apply(chain, values)
        means.append(chain.state_dict()["0:standardize"]["mean"])
    # shares 1, 1/2, 1/3, 1/4, then 1/4 again where a plain average would give 1/5
    third = 2.5 + 0.5 / 3
    fourth = third * 0.75 + 1.25
    np.testing.assert_allclose(means, [1.0, 2.5, third, fourth, fourth * 0.75 + 1.5])


def test_running_before_anything_was_learnt_uses_the_batch():
    chain = chain_of([{"kind": "standardize", "by": "running", "eps": 0.0}], "t")
    out = apply(chain, [1.0, 3.0], learn=False)
    np.testing.assert_allclose(out, [-(0.5**0.5), 0.5**0.5])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(batches=st.lists(st.lists(st.integers(-1000, 1000), max_size=6), min_size=1, max_size=5))
def test_running_statistics_are_those_of_all_scores(batches: list[list[int]]):
    chain = chain_of([{"kind": "standardize", "by": "running"}], "t")
    for batch in batches:
        apply(chain, batch)
    seen = np.asarray([value for batch in batches for value in batch], dtype=np.float64)
    state: dict[str, Any] = chain.state_dict()["0:standardize"]
    assert state["count"] == len(seen)
    if len(seen):
        np.testing.assert_allclose(
            [state["mean"], state["variance"]], [seen.mean(), seen.var()], atol=1e-7
        )


@settings(max_examples=50, deadline=None, derandomize=True)
@given(values=st.lists(st.integers(-50, 50), min_size=1, max_size=8))
def test_ranks_keep_the_order_and_their_mean_is_a_half(values: list[int]):
    ranks = run("rank", [float(v) for v in values])
    assert np.mean(ranks) == pytest.approx(0.5)
    for a, rank_a in zip(values, ranks, strict=True):
        for b, rank_b in zip(values, ranks, strict=True):
            assert (a < b) == (rank_a < rank_b)
