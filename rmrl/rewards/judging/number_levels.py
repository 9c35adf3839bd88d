"""Read a number from one view of a judge's output, level by level; see `reader` for their order."""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rmrl.rewards.judging.figures import Figure, Scale, figures_of, is_counted, numbers_of
from rmrl.rewards.judging.json_fields import fields_of
from rmrl.rewards.judging.number_mentions import (
    ASPECT,
    JUDGED,
    OF_A_PROBLEM,
    is_scored,
    lone_mentions,
    overall,
    ratios,
)
from rmrl.rewards.judging.reading import Candidate, Reading, decide

_FIELD = re.compile(
    r"score|rating|grade|verdict|overall|overall_score|final_score|total_score|overall_rating"
    r"|final_rating|final_verdict|mark|quality_score"
    r"|评分|得分|分数|总分",
    re.IGNORECASE,
)
_VAGUE_FIELD = re.compile(r"result|value", re.IGNORECASE)
"""Fields that may as well hold what the response computes: read where there is none of `_FIELD`."""
_MARK = re.compile(
    r"\[\[\s{0,3}(?P<double>[^\[\]\n]{1,30}?)\s{0,3}\]\]|\\boxed\s?\{(?P<boxed>[^{}\n]{1,30})\}"
    r"|<(?P<tag>score|rating|grade|verdict|answer|final_score|overall_score|result"
    r"|judge?ment)>(?P<tagged>[^<>]{1,60})</(?P=tag)>",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?P<before>(?:\b[A-Za-z'-]{1,20}[ _-]){0,3})(?<![A-Za-z])(?P<label>scores?|ratings?"
    r"|grades?|verdict|marks?|points awarded|judge?ment|overall|total|result|(?:gesamt)?bewertung"
    r"|punktzahl)(?![A-Za-z])\]?"
    r"|(?P<chinese>最终评分|最终得分|总体评分|综合评分|总评分|总分|评分|得分|分数|打分|给分|评为|打|给出?)|\[(?P<result>RESULT"
    r"|SCORE|RATING|VERDICT|FINAL SCORE)\]",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    r"(?:\"|'|[\s*_`\])}|]){0,6}(?:\((?![0-9.]{1,6}\))[^()\n]{0,60}\)|\[[^\[\]\n]{0,30}\]"
    r"|on a scale[^:\n]{0,40}|out of [0-9]{1,4})?[\s*_`]{0,4}"
    r"(?:(?:is|was|are|would be|should be|will be|to be|at|stands at|comes to|为|是"
    r"|[:=\uff1a]{1,2}>?|->|→|\.{2,3}|…|-{1,2}|–|—|\|)[\s*_`]{0,4}){0,2}"
    r"(?:(?:a|an|about|around|therefore|thus|only|just|given as|roughly|approximately|solid"
    r"|strong|perfect|full|the)\s){0,2}[\"'“*_`\s\[({$|<]{0,6}(?:\\text\{|\\boxed\{)?",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"(?:\b(?:is|was|are|be|at|to)\b|为|是|[:=\uff1a]|->|→|\.\.|…|[-–—|]|\n)", re.IGNORECASE
)
_FINAL = re.compile(
    r"\b(?:final|overall|total|combined|aggregate|revised|updated|composite|average)\b|最终|总|综合",
    re.IGNORECASE,
)
_PLAIN_BEFORE = re.compile(
    r"(?:(?:^|\b)(?:my|the|a|an|its|this|your|assigned|is|give|gives|therefore|so|thus"
    r"|numeric(?:al)?|response|quality|evaluation|assign|award|deserves|answer|final|overall"
    r"|total|"
    r"and|with|by|get|gets|earns|reward|it|of|following|then|would|first|now|or|to|as|in"
    r"|for)[ _-]){0,3}",
    re.IGNORECASE,
)
_GIVES = re.compile(
    r"\b(?:I(?:'d|'ll|'m|\s(?:would|will|can|must|am|have to))?"
    r"(?:\s(?:\w{2,12}ly|also|still|only|thus|therefore|going to|inclined to)){0,2}"
    r"\s(?:giv(?:e|ing)|gave|rat(?:e|ed|ing)|scor(?:e|ed|ing)|grad(?:e|ed|ing)|award(?:ed)?"
    r"|assign(?:ed)?|settled? (?:on|for|at)|go with|say)"
    r"|(?:giv(?:es?|ing)|rat(?:es?|ing)|scor(?:es?|ing)|grad(?:es?|ing)|award(?:s|ing)?"
    r"|assign(?:s|ing)?)"
    rf"(?=[ *]{{1,3}}(?:it|this|that|(?:(?:the|my)\s)?{JUDGED})\b)"
    r"|deserves?|merits|warrants"
    rf"|{JUDGED}\s(?:earns|receives|gets|scores|scored|rates|is worth))"
    r"(?P<object>(?:[ *]{1,3}(?:it|this|that|the|them|a|an|as|at|my|response|answer|reply"
    r"|output|solution|assistant|assistant's|overall|score|rating|grade|mark|of|solid|strong"
    r"|perfect|generous|full|only|about|around|with|to|be|model|submission|essay|summary"
    r"|explanation|text|around|roughly|final)){0,8})[\s*\"'(\[]{1,4}",
    re.IGNORECASE,
)
"""Only the judge gives, and only what it judges gets: "this gives 7" is arithmetic."""
_FILLERS = re.compile(
    r"\b(?:points?|stars?|scores?|punkten?|it(?:'s| is)|i(?:'d| would)? say|i think|an?|so|solid"
    r"|strong|perfect|about|around|maybe|probably|overall|final|rating|grade|verdict"
    r"|scale (?:of |from )?[0-9]{1,4} ?(?:to|-|\u2013) ?[0-9]{1,4})\b"
    r"|分|[\s*_`\"'.:!\[\](){}$]",
    re.IGNORECASE,
)
"""Words beside which a number is all of a text."""
_ASPECTS = 1
"""The highest rank of a label of an aspect."""
_CONDITION = re.compile(
    r"\b(?:if|whether|unless|would have|could have|might have|instead of|rather than|not|n't"
    r"|claims?|says|asks?)\b[^.!?\n,;]*$",
    re.IGNORECASE,
)
_LINE_END = re.compile(r"[*_`\"'\])]{0,4}\s{0,3}(?:\n|[.,;:]\s(?![0-9])|$)")
_GOES_ON = re.compile(r"\s?(?:,|\bto\b|\bor\b|:)\s?[0-9]|\s(?:is|was|equals)\b", re.IGNORECASE)
"""A list of numbers, or a statement about the number itself."""
_LEADS_ON = re.compile(
    r"(?:[:=,(]|\b(?:is|are|was|be|to|equals|gives|get|of|answer|result|value|total|sum|solution))"
    r"[\s*_]*$",
    re.I,
)
_SUPPOSED = re.compile(r"\b(?:if|unless|were|suppos\w+)\b[^.!?;\n]*$", re.IGNORECASE)
_HYPOTHETICAL = re.compile(r"\s(?:only |at most )?(?:if|unless|had|were)\b", re.IGNORECASE)


def read_view_for_number(
    view: str, scale: Scale, *, cut: bool, ended: bool, firm: bool = False
) -> Reading[float] | None:
    """The number in `view`; None where nothing in it reads like one.

    `ended`: the text does not break off in mid-sentence. `firm`: a lone mention does not count.
    """
    figures = list(figures_of(view, scale))
    if cut:
        stop = len(view.rstrip())
        figures = [figure for figure in figures if figure.end < stop]
    places = {figure.start: figure for figure in figures}
    bare = [figure for figure in figures if figure.is_bare(view)]
    reading = decide(list(_marked(view, scale, figures)))
    if reading is not None:
        return reading
    several = len({figure.value for figure in bare}) > 1
    lines = list(_of_lines(view, figures))
    labels = [*_labelled(view, places), *overall(view, bare)]
    whole = any(candidate.rank > _ASPECTS for candidate in labels)
    if lines or whole or not several:
        reading = decide([*labels, *lines])
        if reading is not None:
            return reading
    levels = [list(_statements(view, places))]
    if not labels:
        levels.append(list(ratios(view, bare)))
    if not (labels or several or firm):
        levels.append(list(lone_mentions(view, bare)))
    for candidates in levels:
        # The number of one aspect is that of the whole only where no other number stands.
        if not several or any(candidate.rank for candidate in candidates):
            reading = reading or decide(candidates)
    if reading is not None and (cut or not ended):
        return Reading(None, reason="cut off")
    return reading


def read_json_for_number(view: str, scale: Scale) -> Reading[float] | None:
    """The number in a JSON field, such as "score", of `view`, in which quotation marks are
    whole."""
    if "{" not in view:
        return None
    candidates: list[Candidate[float]] = []
    for content in fields_of(view, _FIELD) or fields_of(view, _VAGUE_FIELD):
        if isinstance(content, bool) or not isinstance(content, int | float | str):
            continue
        value = _only_number(str(content), scale)
        if value is not None:
            candidates.append(Candidate(value, 0, 0, "marked"))
    return decide(candidates)


# --- numbers


def _marked(view: str, scale: Scale, figures: Sequence[Figure]) -> Iterator[Candidate[float]]:
    """Numbers in marks, and the number that is the whole text."""
    for match in _MARK.finditer(view):
        content = match["double"] or match["boxed"] or match["tagged"]
        value = _only_number(content, scale)
        if value is not None and (not match["boxed"] or _is_scored_box(view, match)):
            yield Candidate(value, match.start(), match.end(), "marked")
    if len(figures) == 1 and len(view.strip()) < 60:
        figure = figures[0]
        if _is_all(view, figure.start, figure.end):
            yield Candidate(figure.value, figure.start, figure.end, "marked")


def _is_scored_box(view: str, box: re.Match[str]) -> bool:
    """Whether a box, in which a text of mathematics has its answer, holds a score: behind a word of
    scoring, or on a line of its own that no sentence leads to."""
    if is_scored(view, box.start(), box.end()):
        return True
    line = view.rfind("\n", 0, box.start()) + 1
    rest = view[line : box.start()] + view[box.end() : box.end() + 12].split("\n", 1)[0]
    before = view[max(0, line - 40) : line].rstrip()
    return (
        not rest.strip(" .*_") and not _LEADS_ON.search(before) and not before.endswith(("[", "$"))
    )


def _only_number(content: str, scale: Scale) -> float | None:
    """The number that is all of `content`."""
    figures = list(figures_of(content, scale))
    if len(figures) == 1 and _is_all(content, figures[0].start, figures[0].end):
        return figures[0].value
    return None


def _is_all(content: str, start: int, end: int) -> bool:
    """Whether there are only fillers outside of `start` .. `end`."""
    rest = content[:start] + content[end:]
    return not _FILLERS.sub("", rest)


def _labelled(view: str, places: dict[int, Figure]) -> Iterator[Candidate[float]]:
    only_number = len(numbers_of(view)) == 1
    stop = len(view.rstrip(" \n*_."))
    for match in _LABEL.finditer(view):
        between = _BETWEEN.match(view, match.end())
        if between is None or between.end() not in places:
            continue
        figure = places[between.end()]
        lead = view[max(0, match.start() - 80) : match.start()]
        if _HYPOTHETICAL.match(view, figure.end) or _CONDITION.search(lead):
            continue
        linked = bool(match["result"]) or _LINKED.search(between[0]) is not None
        if match["chinese"]:
            # A label such as "打7分" needs nothing but its unit.
            unit = view[figure.end : figure.end + 2].strip()[:1] == "分"
            linked = unit or bool(between[0].strip())
        rank = _rank(match, figure, view)
        alone = rank % 2 == 1
        before = match["before"] or ""
        word = (match["label"] or "").lower()
        if word == "overall":
            linked = linked or _LINE_END.match(view, figure.end) is not None
        elif word == "total":
            linked = figure.ratio or (alone and ":" in between[0])
        elif word == "result":
            # Mathematics has results, too: they are not the only number.
            linked = alone and not before and figure.end >= stop and only_number
        elif word.startswith("mark") or OF_A_PROBLEM.search(before):
            # Mark is a name, and problems are about scores, too.
            linked = alone and re.search("[:=|]", between[0]) is not None
        supposed = "would" in between[0].lower() and _SUPPOSED.search(lead) is not None
        linked = linked and not supposed and _GOES_ON.match(view, figure.end) is None
        if linked:
            yield Candidate(figure.value, match.start(), figure.end, "label", rank)


def _rank(label: re.Match[str], figure: Figure, view: str) -> int:
    """Rank of a label: final labels before plain ones before those of an aspect; among each, those
    on a line of their own first."""
    before = label["before"] or ""
    final = _FINAL.search(before + (label["label"] or label["chinese"] or "")) is not None
    plain = _PLAIN_BEFORE.fullmatch(before) is not None
    start = view.rfind("\n", max(0, label.start() - 40), label.start()) + 1
    lead = view[max(start, label.start() - 40) : label.start()].strip(" #*_-•>|\t(")
    rest = view[figure.end : figure.end + 12].split("\n", 1)[0].strip(" .!*_`\"')]}|。分")
    kind = int(plain)
    if label["result"] or final:
        kind = 2
    alone = not lead and not rest
    return 2 * kind + int(alone)


def _of_lines(view: str, figures: Sequence[Figure]) -> Iterator[Candidate[float]]:
    """The number of a first or last line that is nothing but a number, or of a text that begins
    with "7. Because"."""
    if not figures:
        return
    first = figures[0]
    before = view[: first.start].strip(" \n*_`\"'[(")
    opens_list = first.value == 1 and view.startswith((". ", ") "), first.end)
    if not before and not opens_list and _LINE_END.match(view[first.end : first.end + 12]):
        yield Candidate(first.value, first.start, first.end, "first line", 1)
    last = figures[-1]
    if view[last.end :].strip(" \n*_`\"'])#.!分"):
        return
    line_start = view.rfind("\n", 0, last.start) + 1
    if line_start == 0 or _LEADS_ON.search(view[max(0, line_start - 24) : line_start].rstrip()):
        return
    if not view[line_start : last.start].strip(" *_`\"'[("):
        yield Candidate(last.value, last.start, last.end, "last line", 1)


def _statements(view: str, places: dict[int, Figure]) -> Iterator[Candidate[float]]:
    """Numbers in statements: "I give it a 7", "it deserves 7 points"; those of an aspect rank
    lower."""
    for match in _GIVES.finditer(view):
        figure = places.get(match.end())
        lead = view[max(0, match.start() - 80) : match.start()]
        if figure is None or _CONDITION.search(lead) or _SUPPOSED.search(lead):
            continue
        if _HYPOTHETICAL.match(view, figure.end):
            continue
        if not is_counted(view, figure.end):
            rank = int(not ASPECT.match(view, figure.end))
            yield Candidate(figure.value, match.start(), figure.end, "stated", rank)
