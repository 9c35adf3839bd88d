"""The ranking in a judge's text about a list of numbered responses.

2 > 1 = 3                  in one line; = is a tie
Ranking: 2, 1, 3           behind a word for ranking
Ranking:                   a numbered list below such a word, or with it in each entry
1. Response 2
2. Response 1
3. Response 3
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

_AROUND = re.compile(r"(?i)\bresponse[ \t]+(?=[(\[\"'#]?\d)|[\[\]()\"'#*_`]")
"""Words and marks around a number that do not count."""
_NUMBER = r"[ \t]{0,4}\d{1,3}[ \t]{0,4}"
_IN_LINE = re.compile(
    rf"\d{{1,3}}(?:[ \t]{{0,4}}(?:>{{1,3}}|[≻=≈~]){_NUMBER})+(?![\d.]*\d)"
    rf"|(?i:\brank(?:ing|ed)?\b[^\n:\d]{{0,40}}:)(?P<listed>{_NUMBER}(?:,{_NUMBER})+)(?![\d.]*\d)"
)
_HEADING = re.compile(
    r"(?i)\W*(?:(?:my|the|final|overall|here|is|so|therefore|thus)\W+){0,4}ranking\b.{0,40}$"
    r"|.*\bbest to worst\b"
)
_ENTRY = re.compile(
    r"(?i)\W*(?P<rank>rank\s?)?(?P<place>\d{1,3})(?:[.):]| [-\u2013\u2014]| is\b)"
    r"\W*(?:response\W+)?(?P<number>\d{1,3})\b"
)


def last_ranking(text: str, count: int) -> tuple[float, ...] | None:
    """Scores out of the last ranking that names each of 1 .. `count` once: count - 1 for the best,
    0 for the last. Ties share their places' mean."""
    found = [*_lines(text), *_lists(text, count)]
    for _, tied in sorted(found, key=lambda each: each[0], reverse=True):
        if sorted(itertools.chain.from_iterable(tied)) != list(range(1, count + 1)):
            continue
        scores = [0.0] * count
        best = count - 1
        for numbers in tied:
            for number in numbers:
                scores[number - 1] = best - (len(numbers) - 1) / 2
            best -= len(numbers)
        return tuple(scores)
    return None


def _lines(text: str) -> Iterator[tuple[int, list[list[int]]]]:
    """Yield where each ranking in one line ends, and its numbers, tied ones together."""
    at = 0
    for line in text.splitlines(keepends=True):
        for match in _IN_LINE.finditer(_AROUND.sub("", line)):
            places = re.split("[>≻]+|,", match["listed"] or match[0])
            yield at + match.end(), [list(map(int, re.findall(r"\d+", each))) for each in places]
        at += len(line)


def _lists(text: str, count: int) -> Iterator[tuple[int, list[list[int]]]]:
    """Yield where each numbered list with `count` entries ends, and its numbers. Other lines may
    stand between two entries."""
    at = 0
    heading = ""
    numbers: list[list[int]] = []
    ranked = False
    for line in text.splitlines(keepends=True):
        at += len(line)
        entry = _ENTRY.match(line)
        if entry is None:
            if line.strip() and not numbers:
                heading = line.rstrip()
            continue
        if int(entry["place"]) != len(numbers) + 1:
            numbers = []
        if int(entry["place"]) == len(numbers) + 1:
            ranked = bool(entry["rank"] or _HEADING.match(heading))
            numbers.append([int(entry["number"])])
        if ranked and len(numbers) == count:
            yield at, numbers
            numbers = []
