"""Votes: read one from a judge's text in the shipped form, and combine several into one score."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.rewards.dropins.verdict import Verdict
from rmrl.rewards.judging.json_fields import entries_beside
from rmrl.rewards.judging.parser import TIME_LIMIT_S, Parser
from rmrl.rewards.judging.reader import read_number
from rmrl.rewards.judging.reading import EXPLANATIONS, Reading

VOTES = ("mean", "median", "majority")

_CODE_FENCE = re.compile(r"^```\w*\s*|\s*```$")


def combine_votes(votes: Sequence[float], how: str) -> float:
    """One score of at least one vote: their mean, their median, or the most frequent value.

    Equally frequent values share the majority: the score is their mean, so that it does not depend
    on the votes' order.
    """
    if how == "mean":
        return statistics.fmean(votes)
    if how == "median":
        return statistics.median(votes)
    assert how == "majority", how
    counts = Counter(votes)
    highest = max(counts.values())
    return statistics.fmean(value for value, count in counts.items() if count == highest)


def read_vote(
    text: str,
    *,
    scale: Sequence[float] = (),
    choices: Sequence[str] = (),
    cut: bool = False,
    response: str = "",
    prompt: str = "",
) -> Verdict:
    """The verdict in `text` that lies on `scale` (lowest, highest; without one any number) or is
    one of `choices`. See `reader`.

    Where the text is one JSON object, its other entries become columns. `cut`: the text was ended
    by its token limit, so that a number at its very end may be the beginning of a longer one.
    Quotations from `response` do not count, nor do lines that repeat the `prompt`.
    """
    if choices:
        return _chosen(text, choices, cut=cut, response=response, prompt=prompt)
    low = min(scale, default=-math.inf)
    high = max(scale, default=math.inf)
    reading = read_number(text, low, high, cut=cut, response=response, prompt=prompt)
    return _verdict(reading, entries_beside(_CODE_FENCE.sub("", text.strip()), "score"))


def parsed_vote(
    parser: Parser, text: str, *, scale: Sequence[float] = (), response: str = ""
) -> Verdict:
    """The number in the group "score" of a user's own parser, if it lies on `scale`. Its other
    groups become columns."""
    match = parser.read(text, response=response)
    if match.timed_out:
        return Verdict(None, reason=f"the parser took more than {TIME_LIMIT_S:g} s")
    value = _number(match.verdict or "")
    if value is not None and scale and not min(scale) <= value <= max(scale):
        value = None
    return Verdict(value, match.columns)


def _verdict(reading: Reading[float], extra: Mapping[str, Any]) -> Verdict:
    reason = "" if reading.reason is None else EXPLANATIONS[reading.reason]
    return Verdict(reading.verdict, extra, reason=reason)


def _chosen(text: str, choices: Sequence[str], *, cut: bool, response: str, prompt: str) -> Verdict:
    """The choice, all of which are numbers."""
    answer = text.strip()
    if cut and any(choice != answer and choice.startswith(answer) for choice in choices):
        return Verdict(None)
    if answer in choices:
        return Verdict(_number(answer))
    values: list[float] = []
    for choice in choices:
        value = _number(choice)
        if value is not None:
            values.append(value)
    if not values:
        return Verdict(None)
    reading = read_number(text, min(values), max(values), cut=cut, response=response, prompt=prompt)
    if reading.verdict is not None and reading.verdict not in values:
        return Verdict(None)
    return _verdict(reading, {})


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def numeric(choices: Sequence[str]) -> bool:
    """Whether there are choices and each is a finite number, so that the chosen one is the
    verdict."""
    return bool(choices) and None not in map(_number, choices)
