"""Scores and ranks of two choices beside each other, as in "A: 8/10, B: 6/10"."""

from __future__ import annotations

import re

from rmrl.rewards.judging.choices import MENTION, Choices
from rmrl.rewards.judging.preferences import PLAIN
from rmrl.rewards.judging.reading import Candidate

_SCORES = re.compile(r"\b(?:scores?|ratings?|points|grades)\b|评分|得分", re.IGNORECASE)
_SIDE_SCORE = re.compile(
    rf"({MENTION})(?:'s)?(?:\s(?P<word>scores?|rating|gets|receives|earns)(?:\sis|\sa)?)?(?:\s?[:=(]\s?|\s)"
    r"(?P<score>[0-9]{1,3}(?:\.[0-9]{1,3})?)(?:\s?/\s?(?P<high>[0-9]{1,3}))?"
    r"(?=\s*(?:$|[\n.,;)|]|(?:and|vs|versus|while|but|points?|out|stars?)\b))",
    re.IGNORECASE,
)
_RANKING = re.compile(
    rf"\brank(?:ing| 1)?\s?[:\n]\s{{0,3}}(?:1[.):]\s?)?({MENTION})\s{{0,2}}[,>\n]\s{{0,2}}"
    rf"(?:rank 2: ?|2[.):]\s?)?({MENTION})(?=\s*(?:$|[\n.]))",
    re.IGNORECASE,
)


def compared(text: str, choices: Choices) -> list[Candidate[str]]:
    """The choice with the higher score ("A: 8/10, B: 6/10"), or the first of a ranking."""
    if len(choices.sides) != 2:
        return []
    ranking = _RANKING.search(text)
    if ranking is not None and ranking[1] != ranking[2]:
        name = choices.names[choices.index_of(ranking[1])]
        return [Candidate(name, ranking.start(), ranking.end(), "stated", PLAIN)]
    scores = list(_SIDE_SCORE.finditer(text))
    sides = {choices.index_of(score[1]) for score in scores}
    if len(scores) != 2 or sides != set(choices.sides) or scores[0]["high"] != scores[1]["high"]:
        return []
    # Two answers of the responses, too, stand side by side.
    heading = text[max(0, scores[0].start() - 40) : scores[0].start()]
    scored = all(score["high"] or score["word"] for score in scores)
    alone = not _SIDE_SCORE.sub("", text).strip(" ,.;\n")
    if not (scored or alone or _SCORES.search(heading)):
        return []
    lead = float(scores[0]["score"]) - float(scores[1]["score"])
    verdict = choices.of_undecided("tie")
    if lead != 0:
        verdict = choices.names[choices.index_of(scores[0 if lead > 0 else 1][1])]
    return [Candidate(verdict, scores[0].start(), scores[1].end(), "stated", PLAIN)]
