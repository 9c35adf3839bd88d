"""What a user's function may return as one score."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from rmrl.rewards.dropins.verdict import check_verdict


@pytest.mark.parametrize(
    ("returned", "value"),
    [(1, 1.0), (-0.5, -0.5), (True, 1.0), (np.float32(0.5), 0.5), (np.int64(3), 3.0), (np.bool_(False), 0.0), (np.array(0.25), 0.25),
     (np.array([2.0]), 2.0), (torch.tensor(0.5), 0.5), (torch.tensor([3]), 3.0), (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
     (Fraction(1, 4), 0.25), (Decimal("0.5"), 0.5)],
)  # fmt: skip
def test_numbers(returned: Any, value: float):
    verdict = check_verdict(returned)
    assert (verdict.value, verdict.problem) == (value, "")
    assert type(verdict.value) is float


def test_none_is_no_verdict_and_no_problem():
    assert check_verdict(None).value is None
    assert check_verdict(None).problem == ""


def test_a_dict_brings_columns():
    verdict = check_verdict({"score": 2, "why": "short", 3: "x"})
    assert (verdict.value, verdict.extra) == (2.0, {"why": "short", "3": "x"})
    verdict = check_verdict({"score": None, "why": "unsure"})
    assert (verdict.value, verdict.problem, verdict.extra) == (None, "", {"why": "unsure"})


@pytest.mark.parametrize(
    ("returned", "words"),
    [(float("nan"), "returned nan"), (float("-inf"), "returned -inf"), (10**400, "too large"), ("0.5", "returned '0.5' (str)"),
     ([1.0], "returned [1.0] (list)"), (np.ones(2), "ndarray"), (torch.ones(2), "Tensor"), (1j, "complex"), ({}, "(keys: none)"),
     ({"value": 1}, "without 'score' (keys: value)"),
     ({"score": "good"}, "returned 'good'"), ({"score": {"score": 1}}, "a dict as 'score'"),
     (Decimal("NaN"), "returned nan")],
)  # fmt: skip
def test_everything_else_is_a_problem(returned: Any, words: str):
    verdict = check_verdict(returned)
    assert verdict.value is None
    assert words in verdict.problem
    assert len(verdict.problem) < 300
