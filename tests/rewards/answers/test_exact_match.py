from __future__ import annotations

from typing import Any

import pytest

from reward_functions.exact_match import compute_score
from rmrl.rewards.answers import exact_match

PARIS = {"target": ["Paris", "the City of Light"]}


@pytest.mark.parametrize(
    ("response", "truth", "wanted"),
    [
        ("<answer>Paris</answer>", PARIS, 1.0),
        ("<answer> paris. </answer>", PARIS, 1.0),
        ("<answer>City of the Light!</answer>", PARIS, 1.0),  # articles do not count
        ("<answer>Rome</answer> no, <answer>Paris</answer>", PARIS, 1.0),  # the last one does
        ("<answer>Paris</answer> no, <answer>Rome</answer>", PARIS, 0.0),
        ("<answer>Paris, France</answer>", PARIS, 0.0),
        ("Paris", PARIS, 0.0),  # no tag
        ("<answer>Paris", PARIS, 0.0),
        ("", PARIS, 0.0),
        ("<answer>\nU.S.\n</answer>", ["US"], 1.0),
        ("<answer>42</answer>", "42", 1.0),
        ("<answer>42</answer>", 42, 1.0),
        ("<answer>42</answer>", {"target": "42"}, 1.0),
    ],
)
def test_the_last_answer_is_compared_with_each_reference(
    response: str, truth: Any, wanted: float
) -> None:
    assert compute_score("searchR1_nq", response, truth)["score"] == wanted


def test_another_tag_and_the_whole_response() -> None:
    assert exact_match.score("<final>Paris</final>", "paris", tag="final") == 1.0
    assert exact_match.score(" The Paris \n", "paris", tag="") == 1.0
    assert exact_match.score("in Paris", "paris", tag="") == 0.0
    assert compute_score("", "<answer> A b </answer>", "b")["answer"] == "A b"


@pytest.mark.parametrize("truth", [None, [], {"target": []}, {"target": None}, {"answers": ["a"]}])
def test_a_row_without_a_reference_is_no_verdict(truth: Any) -> None:
    with pytest.raises(ValueError, match="reference"):
        exact_match.score("<answer>a</answer>", truth)
