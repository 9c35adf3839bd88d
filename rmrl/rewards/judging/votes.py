"""Votes: reading one from what a judge wrote in the shipped form, and making one score of several."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rmrl.rewards.judging.verdicts import last_json_field, last_number
from rmrl.rewards.verdict import Verdict

VOTES = ("mean", "median", "majority")

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
_LABEL = r"\b(?:score|rating|verdict)\b[\"'*_`\s]*(?:is|of|[:=\uff1a])[\"'*_`\s\[({]*"
_STATED = re.compile(rf"{_LABEL}(?P<number>{_NUMBER})(?P<of>\s*(?:/|out of|of)\s*[0-9]+)?", re.IGNORECASE)
_BARE = re.compile(rf"[\"'*_`\s\[({{]*(?P<number>{_NUMBER})(?P<of>\s*(?:/|out of|of)\s*[0-9]+)?[\"'*_`\s\])}}.]*")
_CODE_FENCE = re.compile(r"^```\w*\s*|\s*```$")


def combine_votes(votes: Sequence[float], how: str) -> float:
    """One score of at least one vote: their mean, their median, or the most frequent value.

    Values that are equally frequent share the majority: the score is their mean, so that it does not depend on the votes' order.
    """
    if how == "mean":
        return statistics.fmean(votes)
    if how == "median":
        return statistics.median(votes)
    assert how == "majority", how
    counts = Counter(votes)
    most = max(counts.values())
    return statistics.fmean(value for value, count in counts.items() if count == most)


def read_vote(text: str, *, scale: Sequence[float] = (), choices: Sequence[str] = (), cut: bool = False, response: str = "") -> Verdict:
    """The last verdict in `text` that lies on `scale` (lowest, highest; without one any number) or is one of `choices`.

    Read are JSON objects with "score" (where the text is nothing else, their other entries become columns), the last "score: 7" (rating,
    verdict; "is" or "of" for the colon) and a text that is nothing but a number; what is quoted from `response` does not count, see
    `verdicts`. `cut`: the text was ended by its token limit, so that a number at its very end may be the beginning of a longer one.
    """
    low, high = (min(scale), max(scale)) if scale else (-math.inf, math.inf)
    if choices:
        return _chosen(text, choices, cut=cut, response=response)
    extra = _columns(text)
    score = last_json_field(text, "score", response=response)
    if score is None:
        return Verdict(_stated(text, low, high, cut=cut, response=response), extra)
    value = _number(str(score))
    return Verdict(value if value is not None and low <= value <= high else None, extra)


def _chosen(text: str, choices: Sequence[str], *, cut: bool, response: str) -> Verdict:
    said = text.strip()
    if cut and any(choice != said and choice.startswith(said) for choice in choices):
        return Verdict(None)
    if said in choices:
        return Verdict(_number(said))
    stated = _stated(text, -math.inf, math.inf, cut=cut, response=response)
    return Verdict(stated if stated in [_number(choice) for choice in choices] else None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def numeric(choices: Sequence[str]) -> bool:
    """Whether there are choices and each is a finite number, so that the chosen one is the verdict."""
    return bool(choices) and all(_number(choice) is not None for choice in choices)


def _columns(text: str) -> dict[str, Any]:
    """Entries beside "score" of a text that is one JSON object; {} of any other."""
    try:
        read: Any = json.loads(_CODE_FENCE.sub("", text.strip()))
    except (ValueError, RecursionError):
        return {}
    return {str(key): value for key, value in read.items() if key != "score"} if isinstance(read, dict) and "score" in read else {}


def _stated(text: str, low: float, high: float, *, cut: bool, response: str) -> float | None:
    """The last number behind a label: every other digit is masked, so that places and quotation marks stay what they are."""
    bare = _BARE.fullmatch(text)
    matches = [bare] if bare else list(_STATED.finditer(text))
    if cut and matches and matches[-1].end() == len(text.rstrip()):
        matches.pop()
    ratios = math.isfinite(high)  # "of 10" says something about a scale that is known
    kept = [match.span("number") for match in matches] + [match.span("of") for match in matches if ratios and match["of"]]
    places = {i for start, end in kept for i in range(start, end)}
    masked = "".join("#" if character.isdigit() and i not in places else character for i, character in enumerate(text))
    return last_number(masked, low, high, response=response) if matches else None
