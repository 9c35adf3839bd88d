"""The levels on which a number is read from one view of a judge's output; see `reader` for their
order."""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rmrl.rewards.judging.json_fields import fields_of
from rmrl.rewards.judging.reading import Candidate, Form, Reading, decide

_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_])(?:(?<![.,])"
    r"|(?<=\.\.))[-+]?[0-9]{1,15}(?:,[0-9]{3}){0,5}(?:\.[0-9]{1,15})?(?![A-Za-z0-9_]"
    r"|\.[0-9]|,[0-9]{1,2}(?![0-9])|\s?[+\u00d7\u00f7]\s?[0-9]|\s?\*\s?[0-9]"
    r"|\s?=\s?[0-9])( ?%)?"
)
"""A number, but for a part of another one (7,5) and for a term of a sum or a product (4 + 3 =
7)."""
_RATIO = re.compile(
    r"[\s*_]{0,4}(?:/|out of|of)[\s*_]{0,4}(?:a (?:possible|maximum|total) (?:of )?)?",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\s{0,2}(?:-|\u2013|\u2014|~|to|至|到|\.\.|and)\s{0,2}", re.IGNORECASE)
_SCALED = re.compile(
    r"(?:满分|out of|maximum(?: score)? (?:of|is)|max(?:imum)?\.?:?|up to|最高"
    r"|highest(?: score)? (?:of|is))\s{0,3}$",
    re.IGNORECASE,
)
_LIST_ENTRY = re.compile(r"^[ \t]{0,8}[0-9]{1,3}[.)](?=[ \t]+\S)", re.MULTILINE)
_NAMED = re.compile(
    r"(?:\b(?:step|line|page|response|output|assistant|answer|option|model|candidate|question"
    r"|example|item|point|criteri(?:on|a)|paragraph|section"
    r"|part|chapter|figure|table|level|version|sentence|case|no\.?|number|requirement|rule"
    r"|equation|problem|stage|phase|rank(?:ed)?|top|only|first|last|than|least|most"
    r"|another|other|about|around|over|under|exactly|these|those|all|both|within|after|before"
    r"|every|each|uses?|has|have|had|with|contains?|makes?|made|in|at|on|by|been|should be"
    r"|must be|=)"
    r"|[#$€£+*/^=<>×÷第])\s{0,2}$",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"[ \t]{0,2}(?:[-\u2013][A-Za-z]|[+*/^=<>×÷]|[A-Za-z个次条处步句段])")
_NOT_COUNTED = re.compile(
    r"\s{0,2}(?:points?|pts|stars?|marks?|out|of|because|since|as|for|on|due|based|is|seems"
    r"|would|feels|overall|and|but|given|due|with|here|to|/|分|in my|from me|if)\b|\s{0,2}[分/]",
    re.IGNORECASE,
)

_FIELD = re.compile(
    r"score|rating|grade|verdict|overall|overall_score|final_score|total_score|overall_rating"
    r"|final_rating|final_verdict|mark|result|value|quality_score"
    r"|评分|得分|分数|总分",
    re.IGNORECASE,
)
_MARK = re.compile(
    r"\[\[\s{0,3}(?P<double>[^\[\]\n]{1,30}?)\s{0,3}\]\]|\\boxed\s?\{(?P<boxed>[^{}\n]{1,30})\}"
    r"|<(?P<tag>score|rating|grade|verdict|answer|final_score|overall_score|result"
    r"|judge?ment)>(?P<tagged>[^<>]{1,60})</(?P=tag)>",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?P<before>(?:\b[A-Za-z'-]{1,20}[ _-]){0,3})(?<![A-Za-z])(?P<label>scores?|ratings?"
    r"|grades?|verdict|marks?|points awarded|judge?ment|overall|total)(?![A-Za-z])\]?"
    r"|(?P<chinese>最终评分|最终得分|总体评分|综合评分|总评分|总分|评分|得分|分数|打分|给分|评为|打|给出?)|\[(?P<result>RESULT"
    r"|SCORE|RATING|VERDICT|FINAL SCORE)\]",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    r"(?:\"|'|[\s*_`\])}|]){0,6}(?:\([^()\n]{0,60}\)|\[[^\[\]\n]{0,30}\]"
    r"|on a scale[^:\n]{0,40}|out of [0-9]{1,4})?[\s*_`]{0,4}"
    r"(?P<aspect>(?:for|of|on) (?:the |this )?[^\n:.;]{1,60}?)?[\s*_`]{0,4}"
    r"(?:(?:is|was|of|are|would be|should be|will be|to be|at|stands at|comes to|为|是"
    r"|[:=\uff1a]{1,2}>?|->|→|\.{2,3}|…|-{1,2}|–|—|\|)[\s*_`]{0,4}){0,2}"
    r"(?:(?:a|an|about|around|therefore|thus|only|just|given as|roughly|approximately|solid"
    r"|strong|perfect|full|the)\s){0,2}[\"'“*_`\s\[({$|<]{0,6}(?:\\text\{|\\boxed\{)?",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"(?:\b(?:is|was|of|are|be|at|to)\b|为|是|[:=\uff1a]|->|→|\.\.|…|[-–—|]|\n)", re.IGNORECASE
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
    r"\b(?:gives?|gave|giving|rates?|rated|rating|awards?|awarded|assigns?|assigned|scores?"
    r"|scored|scoring|grades?|graded|deserves?|earns?|merits|receives?|gets|settle(?:d)? (?:on"
    r"|for|at)|go with|say)"
    r"(?P<object>(?:[ *]{1,3}(?:it|this|that|the|them|a|an|as|at|my|response|answer|reply"
    r"|output|solution|assistant|assistant's|overall|score|rating|grade|mark|of|solid|strong"
    r"|perfect|generous|full|only|about|around|with|to|be|model|submission|essay|summary"
    r"|explanation|around|roughly|final)){0,8})[\s*\"'(\[]{1,4}",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:if|whether|unless|would have|could have|might have|instead of|rather than|not|n't"
    r"|claims?|says|asks?)\b[^.!?\n,;]*$",
    re.IGNORECASE,
)
_HYPOTHETICAL = re.compile(r"\s(?:only |at most )?(?:if|unless|had|were)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers that can be verdicts; the ends may be infinite."""

    low: float
    high: float

    def has(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class _Figure:
    """A number in the text that may be a verdict."""

    value: float
    start: int
    end: int
    """Behind its denominator, if it has one."""
    ratio: bool


def read_view_for_number(
    view: str, scale: Scale, *, cut: bool, ended: bool
) -> Reading[float] | None:
    """The number in `view`; None where it holds nothing that reads like one. `ended`: the text does
    not break off in mid-sentence."""
    figures = list(_figures(view, scale))
    if cut:
        stop = len(view.rstrip())
        figures = [figure for figure in figures if figure.end < stop]
    places = {figure.start: figure for figure in figures}
    reading = decide([*_marked(view, scale), *_alone(view, figures)], view)
    if reading is not None:
        return reading
    reading = decide([*_labelled(view, places), *_of_lines(view, figures)], view)
    if reading is not None:
        return reading
    given = list(_given(view, places))
    ratios = [
        Candidate(f.value, f.start, f.end, "stated", 0)
        for f in figures
        if f.ratio and _is_bare(view, f)
    ]
    lone = [
        Candidate(f.value, f.start, f.end, "lone mention") for f in figures if _is_bare(view, f)
    ]
    reading = decide(given, view) or decide(ratios, view) or decide(lone, view)
    if reading is None:
        return None
    return Reading(None, reason="cut off") if cut or not ended else reading


def read_json_for_number(view: str, scale: Scale) -> Reading[float] | None:
    """The number in a JSON field, such as "score", of `view`, in which quotation marks are
    whole."""
    values = (
        [_number_of(content, scale) for content in fields_of(view, _FIELD)] if "{" in view else []
    )
    return decide([Candidate(value, 0, 0, "marked") for value in values if value is not None], view)


# --- numbers


def _figures(view: str, scale: Scale) -> Iterator[_Figure]:
    """The numbers on the scale that are no list entry, percentage, denominator or end of a range,
    nor over another denominator."""
    entries = {match.start() for match in _LIST_ENTRY.finditer(view)}
    entries = (
        entries if len(entries) > 1 else set()
    )  # one alone may be the verdict: "7. It is mostly right."
    matches = [
        m for m in _NUMBER.finditer(view) if m.start() - _indent(view, m.start()) not in entries
    ]
    ignored: set[int] = set()
    ratios: dict[int, int] = {}
    for k, (before, after) in enumerate(pairwise(matches)):
        between = view[before.end() : min(after.start(), before.end() + 40)]
        if _RATIO.fullmatch(between):
            ignored.add(k + 1)
            if _value(after) == scale.high or scale.high == math.inf:
                ratios[k] = after.end()
            else:
                ignored.add(k)
        elif _RANGE.fullmatch(between) and _is_range(between, _value(before), _value(after), scale):
            ignored |= {k, k + 1}
    for k, match in enumerate(matches):
        value = _value(match)
        percent = match[1] is not None and scale.high != 100
        maximum = (
            value == scale.high
            and _SCALED.search(view[max(0, match.start() - 24) : match.start()]) is not None
        )
        if k not in ignored and scale.has(value) and not percent and not maximum:
            yield _Figure(value, match.start(), ratios.get(k, match.end()), k in ratios)


def _value(match: re.Match[str]) -> float:
    return float(match[0].rstrip(" %").replace(",", ""))


def _is_range(between: str, first: float, second: float, scale: Scale) -> bool:
    """Whether two numbers are the ends of a range: the scale's, in whatever words, or any with a
    dash."""
    ends = (first, second) in ((scale.low, scale.high), (1, scale.high), (0, scale.high))
    dashed = between.strip() in ("-", "\u2013", "\u2014", "~") and first < second
    return ends or dashed


def _indent(view: str, start: int) -> int:
    """Blanks before `start`, at most 8."""
    lead = view[max(0, start - 8) : start]
    return len(lead) - len(lead.rstrip(" \t"))


def _is_bare(view: str, figure: _Figure) -> bool:
    """Whether a number neither counts nor names something: not "2 places", not "step 2", not the
    end of broken JSON."""
    if view[figure.end : figure.end + 1] in ("}", "]"):
        return False
    tail = view[figure.end : figure.end + 16]
    counts = _COUNTED.match(tail) is not None and _NOT_COUNTED.match(tail) is None
    return not counts and not _NAMED.search(view[max(0, figure.start - 16) : figure.start])


# --- marks and labels


def _marked(view: str, scale: Scale) -> Iterator[Candidate[float]]:
    for match in _MARK.finditer(view):
        content = match["double"] or match["boxed"] or match["tagged"]
        figures = list(_figures(content, scale))
        if len(figures) == 1 and _is_all(content, figures[0]):
            yield Candidate(figures[0].value, match.start(), match.end(), "marked")


def _number_of(content: object, scale: Scale) -> float | None:
    """The number that a JSON value is."""
    if isinstance(content, bool) or not isinstance(content, int | float | str):
        return None
    figures = list(_figures(str(content), scale))
    return figures[0].value if len(figures) == 1 and _is_all(str(content), figures[0]) else None


def _is_all(content: str, figure: _Figure) -> bool:
    rest = content[: figure.start] + content[figure.end :]
    return not re.sub(r"(?i)points?|stars?|score|分|[\s*_`\"'.:\[\](){}$]", "", rest)


def _alone(view: str, figures: Sequence[_Figure]) -> Iterator[Candidate[float]]:
    """The whole text is a number."""
    if (
        len(figures) == 1
        and len(view.strip()) < 60
        and _is_all(view.strip(), _shifted(figures[0], view))
    ):
        yield Candidate(figures[0].value, figures[0].start, figures[0].end, "marked")


def _shifted(figure: _Figure, view: str) -> _Figure:
    blanks = len(view) - len(view.lstrip())
    return _Figure(figure.value, figure.start - blanks, figure.end - blanks, figure.ratio)


def _labelled(view: str, places: dict[int, _Figure]) -> Iterator[Candidate[float]]:
    for match in _LABEL.finditer(view):
        between = _BETWEEN.match(view, match.end())
        figure = None if between is None else places.get(between.end())
        if between is None or figure is None or not _is_linked(match, between, figure, view):
            continue
        conditional = _HYPOTHETICAL.match(view, figure.end) is not None
        if conditional or _CONDITION.search(view[max(0, match.start() - 80) : match.start()]):
            continue
        yield Candidate(
            figure.value, match.start(), figure.end, "label", _rank(match, between, figure, view)
        )


def _is_linked(label: re.Match[str], between: re.Match[str], figure: _Figure, view: str) -> bool:
    """Whether something links the label with the number; "打7分" needs nothing but its unit."""
    if label["chinese"] or label["result"]:
        return (
            bool(between[0].strip())
            or view[figure.end : figure.end + 2].strip()[:1] == "分"
            or bool(label["result"])
        )
    return _LINKED.search(between[0]) is not None


def _rank(label: re.Match[str], between: re.Match[str], figure: _Figure, view: str) -> int:
    """Final labels before plain ones before those of an aspect; of each kind those on a line of
    their own first."""
    before = label["before"] or ""
    final = _FINAL.search(before + (label["label"] or label["chinese"] or "")) is not None
    plain = _PLAIN_BEFORE.fullmatch(before) is not None and not between["aspect"]
    start = view.rfind("\n", max(0, label.start() - 40), label.start()) + 1
    lead = view[max(start, label.start() - 40) : label.start()].strip(" #*_-•>|\t(")
    rest = view[figure.end : figure.end + 12].split("\n", 1)[0].strip(" .!*_`\"')]}|。分")
    own_line = not lead and not rest
    kind = 2 if (final and not between["aspect"]) or label["result"] else int(plain)
    return 2 * kind + int(own_line)


def _of_lines(view: str, figures: Sequence[_Figure]) -> Iterator[Candidate[float]]:
    """A first or last line that is nothing but a number, or a text that begins with "7.
    Because"."""
    if not figures:
        return
    forms: tuple[tuple[_Figure, Form], ...] = (
        (figures[0], "first line"),
        (figures[-1], "last line"),
    )
    for figure, form in forms:
        before = view[: figure.start] if form == "first line" else view[figure.end :]
        if form == "first line":
            alone = not before.strip(" \n*_`\"'[(#") and re.match(
                r"[*_`\"'\])]{0,4}\s{0,3}(?:\n|[.,;:]\s|$)", view[figure.end : figure.end + 12]
            )
        else:
            line = view[view.rfind("\n", 0, figure.start) + 1 : figure.start]
            alone = (
                not before.strip(" \n*_`\"'])#.!分")
                and "\n" in view[: figure.start]
                and not line.strip(" *_`\"'[(#")
            )
        if alone:
            yield Candidate(figure.value, figure.start, figure.end, form, 1)


def _given(view: str, places: dict[int, _Figure]) -> Iterator[Candidate[float]]:
    """ "I give it a 7", "it deserves 7 points"."""
    for match in _GIVES.finditer(view):
        figure = places.get(match.end())
        if figure is None or _CONDITION.search(view[max(0, match.start() - 80) : match.start()]):
            continue
        tail = view[figure.end : figure.end + 16]
        if _COUNTED.match(tail) is None or _NOT_COUNTED.match(tail) is not None:
            yield Candidate(figure.value, match.start(), figure.end, "stated", 1)
