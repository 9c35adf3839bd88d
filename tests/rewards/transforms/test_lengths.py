"""overlong, length, cosine_length: what depends on the response's length, by hand."""

from __future__ import annotations

import dataclasses

import numpy as np

from rmrl.rewards.transforms import chain_of
from tests.rewards.combine.parts import rows
from tests.rewards.transforms.test_chain import run


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
