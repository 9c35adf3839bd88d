"""Refusals of a judge, as opposed to verdicts that could not be read."""

from __future__ import annotations

import re

_LOOKED_AT = 240
"""Number of characters that are searched: refusals open a text. Further down the same words are
part of a judgement."""

_UNABLE = (
    r"(?:cannot|can not|can't|could not|couldn't|will not|won't|(?:am|are) (?:not able|unable|not"
    r" going) to|must decline to)"
)
_TASK = (
    r"(?:help|assist|comply|engage|participate|continue|proceed|provide|respond|support|process|fulfil+|"
    r"evaluate|rate|judge|grade|score|assess|review|critique|compare|generate|create|write|(?:do|answer|discuss)"
    r" (?:that|this|it))"
)
_REFUSAL = re.compile(
    rf"\b(?:I|we) {_UNABLE} (?:\w+ly )?{_TASK}\b"
    r"|\bI (?:must|have to|need to) (?:\w+ly )?(?:decline|refuse)\b"
    r"|\b(?:against|violates?) my (?:guidelines|polic(?:y|ies)|programming|principles)\b"
    rf"|^(?:I am |we are )?(?:\w+ )?sorry,? (?:but )?(?:I|we) {_UNABLE}\b",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether `text`, in which there is no verdict, opens with a refusal such as "I can't help with
    that". English only."""
    start = " ".join(text.split())[:_LOOKED_AT].replace("\u2019", "'")
    start = start.replace("'m ", " am ").replace("'re ", " are ")
    return _REFUSAL.search(start) is not None
