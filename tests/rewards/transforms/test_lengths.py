"""overlong, length, cosine_length, length_residual: what depends on the response's length, by hand."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from rmrl.errors import CheckpointError
from rmrl.rewards.transforms import Chain, chain_of
from rmrl.rewards.transforms.length_residual import LineMoments
from tests.rewards.combine.parts import rows
from tests.rewards.transforms.test_chain import apply, refused, run


def test_overlong_is_equation_13():
    raw = {"kind": "overlong", "max_length": 20, "buffer": 5}
    # free up to 15; 17: -(17 - 15) / 5; 20: -1; beyond: no further
    assert run(raw, [1.0] * 6, lengths=[0, 15, 17, 20, 21, 400]) == [1.0, 1.0, 0.6, 0.0, 0.0, 0.0]
    assert run({**raw, "penalty": 0.5}, [1.0, -1.0], lengths=[17, 30]) == [0.8, -1.5]


def test_length_per_token_above_the_target():
    raw = {"kind": "length", "target": 10, "per_token": 0.1}
    assert run(raw, [1.0, 1.0, 1.0], lengths=[3, 10, 14]) == [1.0, 1.0, 0.6]
    assert run({**raw, "at_most": 0.3}, [1.0], lengths=[14]) == [0.7]


def test_cosine_length_by_hand():
    raw = {"kind": "cosine_length", "max_length": 30}
    # cos(pi / 3) = 1/2 at a third of the way: 0.5 + 0.5 * 0.75 for a correct, -0.5 - 0.5 * 0.75 for
    # a wrong one
    assert run(raw, [1.0] * 4, lengths=[0, 10, 15, 30]) == [1.0, 0.875, 0.75, -1.0]
    assert run(raw, [0.0] * 4, lengths=[0, 10, 15, 30]) == [-1.0, -0.875, -0.75, -1.0]


def test_a_response_that_was_cut_exceeds_whatever_its_length():
    chain = chain_of([{"kind": "cosine_length", "max_length": 30, "exceeded": -2.0}], "t")
    about = dataclasses.replace(rows(2, lengths=[0, 0]), truncated_B=np.asarray([True, False]))
    assert chain.apply(np.ones(2), about, np.ones(2, dtype=bool)).tolist() == [-2.0, 1.0]


def residual(values: list[float], lengths: list[int], chain: Chain, *, learn: bool = True) -> Any:
    return apply(chain, values, rows(len(values), lengths=lengths), learn=learn)


def test_the_residual_of_length_by_hand():
    chain = chain_of([{"kind": "length_residual", "from_rows": 2, "decay": None}], "t")
    # log(1 + tokens) = 0, 1, 2 in units of log 10; scores 1, 2, 6: b = 2.5 per unit around 1
    # the line leaves 0.5, -1 and 0.5, so se = sqrt(1.5 / 1 / 2) and t^2 = 2.5^2 / 0.75 = 25 / 3:
    # b = 2.5 * (1 - 4 * 3 / 25) = 1.3
    out = residual([1.0, 2.0, 6.0], [0, 9, 99], chain)
    np.testing.assert_allclose(out, [2.3, 2.0, 4.7], atol=1e-6)
    # a fourth row joins the line: x = 0 1 2 1, y = 1 2 6 3; mean of x 1, slope 5 / 2, left are 0.5
    # -1 0.5 0: se^2 = 1.5 / 2 / 2, t^2 = 50 / 3, b = 2.5 * (1 - 12 / 50) = 1.9
    np.testing.assert_allclose(residual([3.0], [9], chain), [3.0], atol=1e-6)
    # validation learns nothing; 999 tokens count as 99, the most so far, 1 unit above: 7 - 1.9
    for _ in range(2):
        np.testing.assert_allclose(residual([7.0], [999], chain, learn=False), [5.1], atol=1e-6)


def test_batches_join_to_the_line_of_all_rows_and_fade_with_decay():
    draw = np.random.default_rng(3)
    lengths = draw.integers(0, 900, 60)
    values = 0.4 * np.log1p(lengths) + draw.normal(size=60)
    chain = chain_of([{"kind": "length_residual", "from_rows": 2, "decay": None}], "t")
    for part in (slice(0, 7), slice(7, 40)):
        residual(values[part].tolist(), lengths[part].tolist(), chain)
    out = residual(values[40:].tolist(), lengths[40:].tolist(), chain)
    x = np.log1p(lengths)
    slope = np.cov(x, values, bias=True)[0, 1] / x.var()
    left = values - values.mean() - slope * (x - x.mean())
    t2 = slope**2 / (left @ left / 58 / (60 * x.var()))
    slope *= 1 - 4 / t2
    np.testing.assert_allclose(out, values[40:] - slope * (x[40:] - x.mean()), atol=1e-6)
    # a share of 0.5 at least: (12 + 4) / 2 = 8 in units of log 10 instead of 12 * 3/4 + 4 * 1/4
    faded = LineMoments().joined(np.full(3, 12.0), np.zeros(3), decay=0.5)
    assert faded.joined(np.full(1, 4.0), np.zeros(1), decay=0.5).mean_x == 8.0
    assert faded.joined(np.full(1, 4.0), np.zeros(1), decay=None).mean_x == 10.0


def test_before_enough_rows_and_without_any_difference_in_length_scores_stay():
    chain = chain_of([{"kind": "length_residual", "from_rows": 4}], "t")
    assert residual([1.0, 5.0, 9.0], [1, 10, 100], chain).tolist() == [1.0, 5.0, 9.0]
    assert residual([5.0], [10], chain).tolist() != [5.0]
    same = chain_of([{"kind": "length_residual", "from_rows": 2}], "t")
    assert residual([1.0, 5.0, 9.0], [50, 50, 50], same).tolist() == [1.0, 5.0, 9.0]


def test_the_residual_has_the_mean_of_the_scores_and_no_correlation_with_length():
    draw = np.random.default_rng(5)
    lengths = draw.integers(1, 2000, 500)
    values = 3.0 + 0.7 * np.log1p(lengths) + draw.normal(size=500)
    chain = chain_of([{"kind": "length_residual"}], "t")
    out = residual(values.tolist(), lengths.tolist(), chain)
    assert np.isclose(out.mean(), values.mean())
    assert np.corrcoef(np.log1p(lengths), values)[0, 1] > 0.4
    # the slope is some 15 standard errors, of which 4 / 15 are left in it
    assert abs(np.corrcoef(np.log1p(lengths), out)[0, 1]) < 0.03


def test_a_resumed_line_is_the_same_and_a_torn_one_is_refused():
    draw = np.random.default_rng(6)
    batches = [(draw.normal(size=8).tolist(), draw.integers(1, 99, 8).tolist()) for _ in range(6)]
    entries = [{"kind": "length_residual", "from_rows": 16}]
    whole = chain_of(entries, "t")
    outputs = [residual(*batch, whole).tolist() for batch in batches]
    before = chain_of(entries, "t")
    for batch in batches[:3]:
        residual(*batch, before)
    after = chain_of(entries, "t")
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert [residual(*batch, after).tolist() for batch in batches[3:]] == outputs[3:]
    with pytest.raises(CheckpointError, match="the line of length_residual in the checkpoint"):
        after.load_state_dict({"0:length_residual": {"count": 3}})


def test_one_odd_length_proves_nothing_about_long_ones():
    """255 rows of 512 tokens and one of 500: the score of that one makes the slope."""
    draw = np.random.default_rng(1)
    believed = 0
    for _ in range(50):
        chain = chain_of([{"kind": "length_residual", "decay": None}], "t")
        residual(draw.normal(size=256).tolist(), [512] * 255 + [500], chain)
        moved = float(residual([3.0], [50], chain, learn=False)[0] - 3.0)
        # 50 tokens count as 500, so no more is taken off than that row's own distance
        assert abs(moved) < 4
        believed += moved != 0
    # |t| > 2 in 5 % of the chains: 2.5 of 50
    assert believed <= 8


def test_rows_that_faded_are_no_evidence():
    chain = LineMoments()
    for _ in range(400):
        chain = chain.joined(np.arange(4.0), np.zeros(4), decay=0.9)
    # shares of 0.1, 0.09, ... : 0.1^2 / (1 - 0.9^2) = 1 / 19 of a batch's variance, so 19 batches of 4
    assert chain.weight == pytest.approx(76, rel=1e-6)


def test_infinite_scores_do_not_spoil_the_line():
    chain = chain_of([{"kind": "length_residual", "from_rows": 2, "decay": None}], "t")
    out = residual([1.0, 2.0, 6.0, np.inf], [0, 9, 99, 3], chain)
    np.testing.assert_allclose(out[:3], [2.3, 2.0, 4.7], atol=1e-6)


def test_entries_of_the_residual_that_cannot_be():
    problems = refused({"kind": "length_residual", "decay": 1.5, "from_rows": 1})
    assert problems == [
        "reward.transforms.a.from_rows=1: give at least 2",
        "reward.transforms.a.decay=1.5: give a share between 0 and 1, e.g. 0.99",
    ]
