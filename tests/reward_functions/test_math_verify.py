"""The rule of the MATH examples: the boxed answer against the reference, whatever stands around
it."""

from __future__ import annotations

import pytest

from reward_functions.math_verify import compute_score


@pytest.mark.parametrize(
    ("response", "reference", "score"),
    [
        ("First $x=4$, so the answer is $\\boxed{\\frac{1}{2}}$.", "0.5", 1.0),
        ("\\boxed{3} no, wait: \\boxed{4}", "4", 1.0),
        ("\\boxed{3} no, wait: \\boxed{4}", "3", 0.0),
        (
            "\\boxed{\\left( 3, \\frac{\\pi}{2} \\right)}",
            "\\left( 3, \\frac{\\pi}{2} \\right)",
            1.0,
        ),
        ("\\boxed{", "3", 0.0),
    ],
)
def test_the_last_box_counts(response: str, reference: str, score: float):
    assert compute_score("hendrycks/math", response, reference, {}) == score


def test_a_reference_that_cannot_be_read_is_no_verdict():
    with pytest.raises(ValueError, match="cannot be read as mathematics"):
        compute_score("hendrycks/math", "\\boxed{3}", "")
