"""Rule: 1 if the last number in the response equals the reference answer, else 0. Made for the
arithmetic example."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

# A minus sign directly after a digit is a subtraction, not a sign: "12-5" ends in 5.
NUMBER = re.compile(r"(?<!\d)-?\d+(?:,\d{3})*(?:\.\d+)?")


def last_number(text: str) -> Decimal | None:
    """The last number written in `text`, thousands separators removed; None if there is none."""
    found = NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
) -> float:
    """1.0 or 0.0; a response without any number is wrong, not missing. Raises ValueError if
    `ground_truth` is no number."""
    try:
        wanted = Decimal(str(ground_truth).replace(",", "").strip())
    except InvalidOperation as error:
        raise ValueError(
            f"The reference answer {ground_truth!r} is no number; 'arithmetic' needs one in"
            " reward_model.ground_truth."
        ) from error
    return float(last_number(solution_str) == wanted)
