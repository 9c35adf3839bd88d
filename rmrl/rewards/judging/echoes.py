"""Lines of a judge's output that only repeat what the judge was asked: an echo is no statement.

A prompt may hold something that reads like a verdict: `Reply with "Score: 10"`, an example, a
rubric's levels. A weak judge repeats such lines. Lines that the prompt offers in several values
("Verdict: A", "Verdict: B"; "1: poor", "2: good") are choices: one of them alone is a verdict,
several are an echo. Time is linear in the lengths of both texts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

_SHORTEST = 5
"""Characters without white space; a bare "7" or "[A]" is a verdict wherever else it stands."""
_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|“([^“”\n]+)”|「([^「」\n]+)」|'([^'\n]+)'")
_LEVEL = re.compile(r"\s*[-*]?\s*[0-9]+\s?[:.)=\u2013-]")
_VALUE = re.compile(r"[0-9]+(?:\.[0-9]+)?|(?<![A-Za-z])[A-Z](?![A-Za-z])")
_DECORATION = " \t\r\"'`*_#>-“”「」.。!"


class Prompt:
    """The judge's prompt, prepared for comparison with its output."""

    def __init__(self, text: str) -> None:
        self._kinds: dict[str, str] = {}
        for line in _offers(text):
            key = _key(line)
            if len(key) >= _SHORTEST:
                self._kinds.setdefault(key, _kind(line))
        offered: defaultdict[str, int] = defaultdict(int)
        for kind in self._kinds.values():
            offered[kind] += 1
        self._choices = {kind for kind, count in offered.items() if count > 1}

    def echoes(self, text: str) -> list[tuple[int, int]]:
        """(start, end) of each line of `text` that repeats a line, or a quotation, of the
        prompt."""
        lines: list[tuple[int, int, str]] = []
        for start, end in _lines(text):
            key = _key(text[start:end])
            if key in self._kinds:
                lines.append((start, end, key))
        repeated: defaultdict[str, set[str]] = defaultdict(set)
        for _, _, key in lines:
            repeated[self._kinds[key]].add(key)
        return [
            (start, end)
            for start, end, key in lines
            if not self._is_chosen(key, repeated[self._kinds[key]])
        ]

    def has(self, quotation: str) -> bool:
        """Whether `quotation` holds a value and repeats a line or a quotation of the prompt that is
        no choice."""
        kind = self._kinds.get(_key(quotation)) if _VALUE.search(quotation) else None
        return kind is not None and kind not in self._choices

    def _is_chosen(self, key: str, repeated: set[str]) -> bool:
        return self._kinds[key] in self._choices and len(repeated) == 1


@lru_cache(maxsize=64)
def asked(prompt: str) -> Prompt:
    """The prompt, made once for the votes and views of one output after another."""
    return Prompt(prompt)


def _offers(text: str) -> Iterator[str]:
    """The lines of the prompt, and what it quotes."""
    for start, end in _lines(text):
        line = text[start:end]
        yield line
        for match in _QUOTED.finditer(line):
            yield next(group for group in match.groups() if group is not None)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while at <= len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield at, end
        at = end + 1


def _key(line: str) -> str:
    """The line without white space and decoration; case does not matter."""
    return "".join(line.strip(_DECORATION).split()).casefold()


def _kind(line: str) -> str:
    """The common form of lines that offer several values of one thing."""
    if _LEVEL.match(line):
        return "level"
    return "".join(_VALUE.sub("#", line.strip(_DECORATION)).split()).casefold()
