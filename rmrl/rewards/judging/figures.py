"""The numbers in a judge's output that may be scores, by what stands next to them."""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_])(?:(?<![.,])"
    r"|(?<=\.\.))[-+]?[0-9]{1,15}(?:,[0-9]{3}){0,5}(?:\.[0-9]{1,15})?(?![A-Za-z0-9_]"
    r"|\.[0-9]|,[0-9]{1,2}(?![0-9])"
    r"|\s?(?:[+\u00d7\u00f7*=]|x\b|\\(?:times|cdot|div|pm)\b)\s?[$(\\]{0,2}[0-9]"
    r"|\s?[-\u2013]\s?\$?[0-9]{1,15}(?:\.[0-9]{1,15})?\s?=)( ?%)?"
)
"""A number, except a part of another one (7,5) or a term of a sum or a product (4 + 3 = 7)."""
_RATIO = re.compile(
    r"[\s*_]{0,4}(?:分\s?)?(?:/|out of|of|von)[\s*_]{0,4}"
    r"(?:a (?:possible|maximum|total) (?:of )?)?",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"\s?/\s?[\w($]")
_RANGE = re.compile(r"\s{0,2}(?:-|\u2013|\u2014|~|to|至|到|\.\.|and)\s{0,2}", re.IGNORECASE)
_DASHES = ("-", "\u2013", "\u2014", "~")
_SCALED = re.compile(
    r"(?:满分[是为:\uff1a]?|out of|maximum(?: score)? (?:of|is)|max(?:imum)?\.?:?|up to|最高"
    r"|highest(?: score)? (?:of|is))\s{0,3}$",
    re.IGNORECASE,
)
_OF_SCALE = re.compile(r"\bscale (?:of|from) $", re.IGNORECASE)
_SCALE_BEHIND = re.compile(r"\s?分?(?:制|中|满分)")
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
    r"\s{0,2}(?:points?|pts|punkten?|stars?|marks?|out|of|because|since|as|for|on|due|based|is|seems"
    r"|would|feels|overall|and|but|given|due|with|here|to|/|分|in my|from me|if)\b|\s{0,2}[分/]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers that can be verdicts; the ends may be infinite."""

    low: float
    high: float

    def has(self, value: float) -> bool:
        """Whether `value` is a number of the scale."""
        return self.low <= value <= self.high

    def ends_with(self, first: float, second: float) -> bool:
        """Whether a range is that of the scale, in which 0 or 1 may stand for its low end."""
        return second == self.high and first in (self.low, 0, 1)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in the text that may be a verdict."""

    value: float
    start: int
    end: int
    """Behind its denominator, if it has one."""
    ratio: bool

    def is_bare(self, view: str) -> bool:
        """False for a number that counts or names something, as in "2 places" and "step 2", and for
        the end of broken JSON."""
        if view[self.end : self.end + 1] in ("}", "]"):
            return False
        return not is_counted(view, self.end) and not _NAMED.search(
            view[max(0, self.start - 16) : self.start]
        )


def is_counted(view: str, end: int) -> bool:
    """Whether a number that ends there counts what follows it."""
    tail = view[end : end + 16]
    return _COUNTED.match(tail) is not None and _NOT_COUNTED.match(tail) is None


def figures_of(view: str, scale: Scale) -> Iterator[Figure]:
    """The numbers on the scale that may be a verdict.

    Left out are list entries, percentages, amounts of money, denominators, ends of a range, and
    numbers over another denominator than the scale's maximum.
    """
    matches = numbers_of(view)
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
        elif _RANGE.fullmatch(between):
            first = _value(before)
            second = _value(after)
            lead = view[max(0, before.start() - 12) : before.start()]
            scale_ahead = _OF_SCALE.search(lead) is not None
            tight = between == between.strip()
            dashed = between.strip() in _DASHES and (tight or first < second)
            if scale_ahead or dashed or scale.ends_with(first, second):
                ignored |= {k, k + 1}
    for k, match in enumerate(matches):
        value = _value(match)
        if k in ignored or not scale.has(value):
            continue
        percent = match[1] is not None and scale.high != 100
        lead = view[max(0, match.start() - 24) : match.start()]
        end = ratios.get(k, match.end())
        is_maximum = value == scale.high and (
            _SCALED.search(lead) is not None or _SCALE_BEHIND.match(view, match.end()) is not None
        )
        is_money = lead[-1:] in ("$", "€", "£", "¥") and view[end : end + 1] != "$"
        is_fraction = k not in ratios and _FRACTION.match(view, end) is not None
        if not (percent or is_maximum or is_money or is_fraction):
            yield Figure(value, match.start(), end, k in ratios)


def numbers_of(view: str) -> list[re.Match[str]]:
    """The numbers in `view` without those of a list's entries.

    One list entry alone is a number: it may be the verdict ("7. It is mostly right.").
    """
    entries = {match.start() for match in _LIST_ENTRY.finditer(view)}
    matches = list(_NUMBER.finditer(view))
    if len(entries) < 2:
        return matches
    numbers: list[re.Match[str]] = []
    for match in matches:
        lead = view[max(0, match.start() - 8) : match.start()]
        indent = len(lead) - len(lead.rstrip(" \t"))
        if match.start() - indent not in entries:
            numbers.append(match)
    return numbers


def _value(match: re.Match[str]) -> float:
    return float(match[0].rstrip(" %").replace(",", ""))
