from __future__ import annotations

import pytest

from reward_functions.arithmetic import compute_score


@pytest.mark.parametrize(
    ("response", "truth", "wanted"),
    [
        ("46", "46", 1.0),
        ("12+34=46", "46", 1.0),
        ("12-34=-22", "-22", 1.0),
        ("12-34=-22", "22", 0.0),
        ("it is 12-5", "5", 1.0),  # a minus after a digit is no sign
        ("it is 12 - 5", "5", 1.0),
        ("first 46, then 47", "46", 0.0),  # the last number counts
        ("46.0", "46", 1.0),
        ("46.5", "46", 0.0),
        ("1,234", "1234", 1.0),
        ("the answer is 46.", "46", 1.0),
        ("460", "46", 0.0),
        ("no idea", "46", 0.0),
        ("", "46", 0.0),
        ("-0", "0", 1.0),
    ],
)
def test_last_number_decides(response: str, truth: str, wanted: float) -> None:
    assert compute_score("arithmetic", response, truth) == wanted


def test_a_reference_that_is_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="'forty'"):
        compute_score("arithmetic", "40", "forty")
