"""GSM8K: a solution's final number against the reference number.

The data set's solutions end in "#### 1,234"; models also write "\\boxed{1234}", "A: $1,234." or
just a sentence.
Numbers are compared as decimals: 18 = 18.0 = $18.00 = "18.". There is no tolerance.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Literal

from rmrl.rewards.answers.format import reference_text

Method = Literal["strict", "flexible"]

_NUMBER = re.compile(
    r"(?:(?<![\d.)])[-\u2212])?(?:\\?[$€£][ ]?[-\u2212]?)?(?:\d[\d,]*(?:\.\d+)?|\.\d+)"
)
"""A minus after a digit or a bracket is a subtraction, one before a space a dash; neither is a
sign."""
_PLAIN = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")


def score(response: str, ground_truth: str, method: Method = "flexible") -> float:
    """1.0 if the response's final number equals the reference's, else 0.0 (also when it has none).

    `ground_truth` is a number or a whole reference solution with its "####". ValueError when no
    number is in it.
    """
    reference = reference_text(ground_truth)
    gold = number(extract_answer(reference, "flexible"))
    if gold is None:
        raise ValueError(
            f"the reference answer {reference[:80]!r} holds no number; GSM8K needs one such"
            " as '18' or '#### 18'"
        )
    return float(number(extract_answer(response, method)) == gold)


def extract_answer(text: str, method: Method = "flexible") -> str | None:
    """Return the final answer as written, e.g. "$1,234" or "-5"; None without one.

    strict: the first number after the last "####". flexible: that, else the last number in the last
    \\boxed{}, else the last number.
    """
    if method not in ("strict", "flexible"):
        raise ValueError(f"method is {method!r}; use 'strict' or 'flexible'")
    _, mark, tail = text.rpartition("####")
    if mark and (match := _NUMBER.search(tail)):
        return match[0].strip()
    if method == "strict":
        return None
    _, mark, tail = text.rpartition("\\boxed{")
    numbers = _numbers(tail.partition("}")[0]) if mark else []
    numbers = numbers or _numbers(text)
    if numbers:
        return numbers[-1]
    return None


def number(answer: str | None) -> Decimal | None:
    """Return an extracted answer's value, without commas and currency signs; None for None or no
    digits."""
    match = _PLAIN.search(answer or "")
    if answer is None or match is None:
        return None
    value = Decimal(match[0].replace(",", ""))
    if set(answer[: match.start()]) & {"-", "\u2212"}:
        return -value
    return value


def _numbers(text: str) -> list[str]:
    return [match[0].strip() for match in _NUMBER.finditer(text)]
