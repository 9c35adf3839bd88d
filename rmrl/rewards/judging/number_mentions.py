"""Numbers that stand where a score would, without a label or a statement in front: "so 7 overall",
"7/10", and the only number behind a word of scoring."""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rmrl.rewards.judging.figures import Figure
from rmrl.rewards.judging.reading import Candidate

OF_A_PROBLEM = re.compile(
    r"\b(?:mean|average|median|tests?|exams?|quiz|game|highest|lowest|passing|perfect|sum|his"
    r"|her|their|(?!(?:assistant|response|reply|answer|output|model)'s)[a-z]+'s)[ _-]",
    re.IGNORECASE,
)
"""Scores that a word problem is about, unless they are a label on a line of its own."""
JUDGED = r"(?:response|reply|output|essay|summary|submission|explanation|assistant|model|text)"
_OF_ALL = re.compile(
    rf"(?:for|of|on) (?:(?:the|this|that) )?(?:{JUDGED}|answer|solution|it|this)\b", re.IGNORECASE
)
"""What the judge judges, as in "the score for this response"."""
_SCORING = re.compile(
    r"(?:\b(?:score|rating|verdict|judge?ment|assessment|quality|bewertung"
    r"|scale (?:of|from) [0-9]{1,4} ?(?:to|-|\u2013) ?[0-9]{1,4})\b|(?:[评打给得]分|[评打给])】?)"
    r"(?P<between>(?:[^.!?;,\n。0-9]{0,60}(?:\b(?:of|is|be|at|an?|around|about|roughly)\b|[:\uff1a为是打给]))?)"
    r"[\s*_`\"'(\[$\\]{0,6}$",
    re.IGNORECASE,
)
_NO_SCORE = re.compile(
    r"\b(?:answers?|results?|values?|comput\w+|calculat\w+|correct(?:ly)?|equals?|got|get|total|sum"
    r"|probability|fraction|ratio|solutions?|because|since|as|for|when|while|whether|that|which"
    r"|who|but|if|due|with|and|not|cannot|never|scale|ends?|starts?|maximum|minimum|most|least"
    r"|below|above|than)\b|=|因为",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"(?:n't|\b(?:not|never|fails?|falls?|short|lacks?|if|unless|without|cannot))\b[^.!?;\n。]*$",
    re.I,
)
_SCORED_BEHIND = re.compile(
    r"\s(?:is|would be|seems|feels)\s(?:like\s)?(?:\w{1,12}\s){0,3}(?:score|rating|verdict)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"(?:^|[\n.!?。;,\uff0c(–—-]|(?:^|\n)[\s*_#•-]{0,6}(?:\w{1,20} ?){1,2}[*_]{0,2}:"
    r"|\b(?:an?|so|thus|hence|therefore))[^\w:]{0,4}$",
    re.I,
)
_CLAUSE_END = re.compile(
    r"[*_)\]\"'$]{0,4}(?:\s*$|[ ]?[\n.,;:!?。\uff0c]|\s[-–—(]|\s(?:for|because|since|as|on"
    r"|in|given|due|but|and|with|overall)\b)"
)
_UNIT = re.compile(r"\s?(?:points?\b|stars?\b|punkten?\b|分)", re.IGNORECASE)
_OVERALL = re.compile(r"[ *_]{1,3}(?:points? )?overall\b", re.IGNORECASE)
ASPECT = re.compile(r"[ *_]{1,3}(?:points? )?(?:for|on|in) (?!my\b|me\b)\w", re.IGNORECASE)


def overall(view: str, bare: Sequence[Figure]) -> Iterator[Candidate[float]]:
    """Numbers with the label behind them, as in "so 7 overall"."""
    for figure in bare:
        if _OVERALL.match(view, figure.end) and _begins_clause(view, figure):
            yield Candidate(figure.value, figure.start, figure.end, "label", 4)


def ratios(view: str, bare: Sequence[Figure]) -> Iterator[Candidate[float]]:
    """Numbers over the end of the scale that are no part of a sentence about something else."""
    for figure in bare:
        if not figure.ratio or view.startswith(" of", figure.end):
            continue
        whole = _begins_clause(view, figure) and _CLAUSE_END.match(view, figure.end)
        is_score = whole or _UNIT.match(view, figure.end) is not None
        if is_score or is_scored(view, figure.start, figure.end):
            rank = int(not ASPECT.match(view, figure.end))
            yield Candidate(figure.value, figure.start, figure.end, "stated", rank)


def lone_mentions(view: str, bare: Sequence[Figure]) -> Iterator[Candidate[float]]:
    """Numbers behind a word of scoring, or with the Chinese word for points."""
    for figure in bare:
        points = re.match(r"\s?分(?![钟之别数米])", view[figure.end : figure.end + 3])
        ends = _CLAUSE_END.match(view, figure.end) or _SCORED_BEHIND.match(view, figure.end)
        if points or (ends and is_scored(view, figure.start, figure.end)):
            yield Candidate(figure.value, figure.start, figure.end, "lone mention", 1)


def is_scored(view: str, start: int, end: int) -> bool:
    """Whether a word of scoring leads to a number, or follows it as in "7 is a fair score"."""
    lead = view[max(0, start - 160) : start]
    word = _SCORING.search(lead)
    if word is not None:
        denied = _DENIED.search(lead, 0, word.start()) or OF_A_PROBLEM.search(
            lead, max(0, word.start() - 12), word.start()
        )
        return not denied and _NO_SCORE.search(_OF_ALL.sub("", word["between"])) is None
    begins = not view[max(0, start - 8) : start].rsplit("\n", 1)[-1].rstrip("*_ ").strip(".!? ")
    return begins and _SCORED_BEHIND.match(view, end) is not None


def _begins_clause(view: str, figure: Figure) -> bool:
    lead = view[max(0, figure.start - 24) : figure.start]
    clause = re.split(r"[.,;!?(\n]", lead)[-1]
    return _CLAUSE.search(lead) is not None and _NO_SCORE.search(clause) is None
