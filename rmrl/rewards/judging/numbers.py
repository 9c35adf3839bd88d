"""Find the numbers in a judge's output that may be scores, and write each as one private character.

These are no scores: list entries, percentages, money, denominators, terms, the ends of a range, and
numbers over another denominator than the scale's maximum.
"""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rmrl.rewards.judging.choices import FIRST, MOST, PRIVATE, Marked, plain

_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_])(?:(?<![.,])|(?<=\.\.))[-+]?"
    r"(?:[0-9]{1,2},[0-9]{1,2}(?= ?/ ?[0-9])|[0-9]{1,15}(?:,[0-9]{3}){0,5}(?:\.[0-9]{1,15})?"
    r"|(?<![.0-9])\.[0-9]{1,15})"
    r"(?![A-Za-z0-9_]|\.[0-9]|,[0-9]{1,2}(?![0-9])"
    r"|\s?(?:[+×÷*=]|x\b|\\(?:times|cdot|div|pm)\b)\s?[$(\\]{0,2}[0-9]"
    r"|\s?[-–]\s?\$?[0-9]{1,15}(?:\.[0-9]{1,15})?\s?=)( ?%)?"
)
"""A number, except a part of another one (7,5, unless a scale's end follows: 7,5/10) or a term in a
calculation (4 + 3 = 7)."""
_WIDE = str.maketrans("\u2212０１２３４５６７８９／．％", "-0123456789/.%")
"""Characters of equal width: the minus sign of Unicode, and what is typed with Chinese and Japanese
letters."""
_RATIO = re.compile(
    r"[\s*_]{0,4}(?:分\s?)?(?:/|out of|of|von)[\s*_]{0,4}"
    r"(?:a (?:possible|maximum|total) (?:of )?)?",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\s{0,2}(?:-|–|—|~|to|至|到|\.\.|and)\s{0,2}", re.IGNORECASE)
_MAXIMUM = re.compile(
    r"(?:满分[是为:：]?|out of|max(?:imum)?\.?:?(?: score)?(?: of| is)?|up to|最高"
    r"|highest(?: score)? (?:of|is))\s{0,3}$",
    re.IGNORECASE,
)
_OF_SCALE = re.compile(r"\bscale (?:of|from) $", re.IGNORECASE)
_LIST_ENTRY = re.compile(r"^[ \t]{0,8}([0-9]{1,3})[.)](?=[ \t]+\S)", re.MULTILINE)
_NAMED = re.compile(
    r"(?:\b(?:step|line|page|response|output|assistant|answer|option|model|candidate|question|item"
    r"|point|criterion|paragraph|section|part|chapter|figure|table|level|case|number|rule|problem"
    r"|rank|top|only|first|last|than|least|most|other|about|around|over|under|exactly|these|those|all"
    r"|both|within|after|before|every|each|uses?|has|have|had|with|makes?|made|in|at|on|by|been"
    r"|should be|must be|=)|[#$€£+*/^=<>×÷第])\s{0,2}$",
    re.IGNORECASE,
)
_COUNTS = re.compile(
    r"[}\]]|(?!\s{0,2}(?:[分/]|(?:points?|pts|punkten?|stars?|marks?|out|of|because|since|as|for|on|due"
    r"|based|is|seems|would|feels|overall|and|but|given|with|here|to|in my|from me|if)\b))"
    r"[ \t]{0,2}(?:[-–][A-Za-z]|[+*/^=<>×÷]|[A-Za-z个次条处步句段])",
    re.IGNORECASE,
)
RATIO = "\ue001"
COUNTS = "\ue002"
NAMED = "\ue003"
"""Marks behind a number: it stands over the scale's end, counts what follows ("7 places"), or names
something ("step 7")."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers that can be verdicts. The ends may be infinite."""

    low: float
    high: float

    def marked(self, view: str) -> Marked[float]:
        """Write each number that is on the scale as a private character."""
        view = PRIVATE.sub(" ", view).translate(_WIDE)
        values: dict[float, str] = {}
        parts: list[str] = []
        several: set[float] = set()
        at = 0
        for value, start, end, ratio in self._figures(view):
            if len(values) == MOST:
                break
            marks = RATIO * ratio
            marks += COUNTS * bool(_COUNTS.match(view, end))
            marks += NAMED * bool(_NAMED.search(view[max(0, start - 16) : start]))
            if not {COUNTS, NAMED} & set(marks):
                several.add(value)
            character = values.setdefault(value, chr(FIRST + len(values)))
            parts += [view[at:start], character, marks]
            at = end
        text = plain("".join([*parts, view[at:]]), private=True)
        return Marked(text, view, tuple(values), several=len(several) > 1)

    def _figures(self, view: str) -> Iterator[tuple[float, int, int, bool]]:
        """Yield (value, start, end behind the denominator, whether there is one) per number."""
        matches = list(_NUMBER.finditer(view))
        entries = {entry.start(1) for entry in _LIST_ENTRY.finditer(view)}
        # One entry alone is a number unless it is 1: it may be the verdict ("7. It is right.").
        matches = [
            match
            for match in matches
            if match.start() not in entries or (len(entries) < 2 and match[0] != "1")
        ]
        ignored: set[int] = set()
        ratios: dict[int, int] = {}
        for k, (before, after) in enumerate(pairwise(matches)):
            between = view[before.end() : min(after.start(), before.end() + 40)]
            first, second = _value(before), _value(after)
            if _RATIO.fullmatch(between):
                ignored.add(k + 1)
                if second == self.high or self.high == math.inf:
                    ratios[k] = after.end()
                else:
                    ignored.add(k)
            elif _RANGE.fullmatch(between):
                tight = between == between.strip() or first < second
                of_scale = second == self.high and first in (self.low, 0, 1)
                dashed = between.strip() in ("-", "–", "—", "~") and tight
                lead = view[max(0, before.start() - 12) : before.start()]
                if of_scale or dashed or _OF_SCALE.search(lead):
                    ignored |= {k, k + 1}
        for k, match in enumerate(matches):
            value = _value(match)
            if k in ignored or not self.low <= value <= self.high:
                continue
            end = ratios.get(k, match.end())
            if not self._is_other(view, match, end, value, k in ratios):
                yield value, match.start(), end, k in ratios

    def _is_other(
        self, view: str, match: re.Match[str], end: int, value: float, ratio: bool
    ) -> bool:
        """Return whether a number is a percentage, the maximum, money or a numerator."""
        lead = view[max(0, match.start() - 24) : match.start()]
        maximum = value == self.high and (
            _MAXIMUM.search(lead) or re.match(r"\s?分?(?:制|中|满分)", view[end : end + 5])
        )
        money = lead[-1:] in ("$", "€", "£", "¥") and view[end : end + 1] != "$"
        fraction = not ratio and re.match(r"\s?/\s?[\w($]", view[end : end + 4])
        return bool((match[1] and self.high != 100) or maximum or money or fraction)


def _value(match: re.Match[str]) -> float:
    figures = match[0].rstrip(" %")
    if re.fullmatch("[-+]?[0-9]{1,2},[0-9]{1,2}", figures):
        return float(figures.replace(",", "."))
    return float(figures.replace(",", ""))
