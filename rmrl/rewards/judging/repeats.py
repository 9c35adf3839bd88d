"""Lines of a judge's output that only repeat its prompt: an echo is no statement.

A prompt may hold something that reads like a verdict: `Reply with "Score: 10"`, an example, a
rubric's levels. A weak judge repeats such lines. Lines that the prompt offers in several values
("Verdict: A", "Verdict: B"; "1: poor", "2: good") are choices: one of them alone is a verdict,
several are an echo. Time is linear in the lengths of both texts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache

_SHORTEST = 5
"""Characters without white space. A bare "7" or "[A]" is a verdict wherever else it stands."""
_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`|“([^“”\n]+)”|「([^「」\n]+)」|'([^'\n]+)'")
_LEVEL = re.compile(r"\s*[-*]?\s*[0-9]+\s?[:.)=\u2013-]")
_VALUE = re.compile(r"[0-9]+(?:\.[0-9]+)?|(?<![A-Za-z])[A-Z](?![A-Za-z])")
_DECORATION = " \t\r\"'`*_#>-“”「」.。!"


class Prompt:
    """The judge's prompt, prepared for comparison with its output."""

    def __init__(self, text: str) -> None:
        offers: list[str] = []
        for start, end in _lines(text):
            offers.append(text[start:end])
            for match in _QUOTED.finditer(text, start, end):
                offers.append(match[match.lastindex or 0])
        self._kinds: dict[str, str] = {}
        """The key of a line -> the common form of the lines that offer several values of one
        thing."""
        for line in offers:
            key = _key(line)
            if len(key) >= _SHORTEST:
                kind = "level"
                if not _LEVEL.match(line):
                    form = _VALUE.sub("#", line.strip(_DECORATION))
                    kind = "".join(form.split()).casefold()
                self._kinds.setdefault(key, kind)
        counts = Counter(self._kinds.values())
        self._choices = {kind for kind, count in counts.items() if count > 1}

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
        spans: list[tuple[int, int]] = []
        for start, end, key in lines:
            kind = self._kinds[key]
            if kind not in self._choices or len(repeated[kind]) > 1:
                spans.append((start, end))
        return spans

    def has(self, quotation: str) -> bool:
        """Whether `quotation` holds a value and repeats a line or a quotation of the prompt that is
        no choice."""
        kind = self._kinds.get(_key(quotation)) if _VALUE.search(quotation) else None
        return kind is not None and kind not in self._choices


@lru_cache(maxsize=64)
def prepared_prompt(prompt: str) -> Prompt:
    """The prompt, prepared once for the votes and views of all outputs."""
    return Prompt(prompt)


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
