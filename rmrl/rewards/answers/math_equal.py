"""Mathematical equality of a response's final answer and a reference, by math-verify (LaTeX and
plain expressions, via sympy).

sympy can run for ever on a short formula, and math-verify's own deadlines use SIGALRM, which works
on main threads only. They are off here. Call this where a deadline is kept from outside, as the
rule pool does.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from math_verify import parse, verify

from rmrl.rewards.answers.format import last_boxed, reference_text

# math-verify warns, once per process, that its deadlines are off.
logging.getLogger("math_verify").setLevel(logging.ERROR)

_DELIMITED = re.compile(r"(?<!\\)\$|\\(boxed|\(|\[|begin\{(equation|align|math))")
_COMMA_NUMBER = re.compile(r"[-+]?\d+,\d+")


def score(
    response: str,
    ground_truth: str,
    *,
    strict: bool = True,
    float_rounding: int = 6,
    allow_set_relation_comp: bool = False,
) -> float:
    """1.0 if the response's final answer equals the reference, else 0.0 (also when the response
    holds no answer).

    `ground_truth`: an expression, with or without LaTeX delimiters. ValueError when it is None or
    cannot be parsed. strict=False compares variables by position and sets with tuples;
    `float_rounding` is in decimals.
    """
    gold = parse_reference(ground_truth)
    options: dict[str, Any] = {
        "strict": strict,
        "float_rounding": float_rounding,
        "allow_set_relation_comp": allow_set_relation_comp,
    }
    if verify(gold, parse(response, parsing_timeout=0), timeout_seconds=0, **options):
        return 1.0
    # math-verify may prefer another formula to the boxed one, and reads some boxed answers, such as
    # 28\%, as mere strings.
    answer = last_boxed(response)
    if not answer:
        return 0.0
    boxed = parse(f"${answer}$", parsing_timeout=0)
    return float(bool(verify(gold, boxed, timeout_seconds=0, **options)))


def parse_reference(ground_truth: str) -> list[Any]:
    """Return the reference as math-verify's candidates (sympy objects and strings). Bare LaTeX such
    as \\frac12 is put in dollars."""
    text = reference_text(ground_truth)
    gold: list[Any] = []
    if not _DELIMITED.search(text):
        gold = parse(f"${text}$", parsing_timeout=0)
    # "1,22" is a pair, or a number with a decimal comma.
    if not gold or _COMMA_NUMBER.fullmatch(text):
        gold = gold + parse(text, parsing_timeout=0)
    if not gold:
        raise ValueError(
            f"the reference answer {text[:80]!r} cannot be read as mathematics; write it as LaTeX,"
            " e.g. \\frac{1}{2}"
        )
    return gold


# math-verify builds its grammars on first use. This happens on import, so that no response's
# deadline includes it.
score("$\\boxed{\\frac{1}{2}}$", "0.5")
score("$\\boxed{x^2 + 1}$", "x^2 + 1")
score("$\\boxed{(1,2)}$", "(1,2)")
