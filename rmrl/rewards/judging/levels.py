"""Read a verdict from one text, level by level: the part that choices and numbers share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Generic, Literal, cast

from rmrl.rewards.judging.choices import Choices, Marked
from rmrl.rewards.judging.json_fields import fields_of
from rmrl.rewards.judging.numbers import Scale
from rmrl.rewards.judging.patterns import Pattern, of_form, table
from rmrl.rewards.judging.quotations import QUOTES, QUOTES_IN_JSON, views
from rmrl.rewards.judging.reading import (
    Candidate,
    Form,
    Reading,
    Value,
    decide,
    ends_mid_sentence,
    ends_with,
)
from rmrl.rewards.judging.thinking import strip_thinking

PLAIN = 3
_CONCLUDING = 4
"""Ranks of statements. Below `PLAIN` they are weak."""
_REVISIONS = 3
"""How many revisions, from the last, may have a verdict behind them."""
_SENTENCE_END = re.compile(r"[.!?][\"')\]]{0,2}(?=\s)|[。;\n]")


class Reader(ABC, Generic[Value]):
    """Finds candidates on each level and decides between them."""

    kind: Literal["choice", "number"]
    fields: Sequence[re.Pattern[str]]
    weak: int
    """Rank that a qualified statement keeps."""

    def __init__(self, meaning: Choices | Scale) -> None:
        self._meaning = meaning
        self._before = of_form(self.kind, "before")
        self._after = of_form(self.kind, "after")
        self._qualified = of_form(self.kind, "qualified")
        self._concludes = of_form(self.kind, "concludes")

    @abstractmethod
    def in_content(self, marked: Marked[Value]) -> Reading[Value] | None:
        """Read the content between marks or in a field. None where it is no verdict."""

    @abstractmethod
    def lines(self, marked: Marked[Value], *, cut: bool) -> Iterator[Candidate[Value]]:
        """Read the first and the last line."""

    @abstractmethod
    def value(
        self, pattern: Pattern, match: re.Match[str], marked: Marked[Value]
    ) -> tuple[bool, Value | None]:
        """Return whether a match has a verdict, and which one. None prefers nothing."""

    def read(self, text: str, *, response: str, prompt: str, cut: bool) -> Reading[Value]:
        """Read the judge's own words, and ever more text where they hold no verdict.

        A verdict behind words of revision voids everything before them.
        """
        ended = not (cut or ends_mid_sentence(strip_thinking(text)[0]))
        own_words = strip_thinking(next(views(text, response, QUOTES, prompt=prompt)))[0]
        revisions = list(table()["revision"].regex.finditer(own_words))
        for revision in reversed(revisions[-_REVISIONS:]):
            start = _sentence_start(own_words, revision.start(), otherwise=revision.start())
            reading = self._in_view(own_words[start:], cut=cut, ended=ended, firm=True)
            if reading is not None and reading.verdict is not None:
                return reading
        for view in views(text, response, QUOTES_IN_JSON, prompt=prompt):
            reading = self.in_json(strip_thinking(view)[0])
            if reading is not None:
                return reading
        left_open = False
        for view in views(text, response, QUOTES, prompt=prompt):
            words, left_open = strip_thinking(view)
            reading = self._in_view(words, cut=cut, ended=ended)
            if reading is not None:
                return reading
        if cut or left_open:
            return Reading(None, reason="cut off")
        return Reading(None, reason="no verdict")

    def in_json(self, view: str) -> Reading[Value] | None:
        """Read the fields of JSON objects. None where none of them is a verdict."""
        if "{" not in view:
            return None
        contents = next(filter(None, (fields_of(view, names) for names in self.fields)), [])
        candidates: list[Candidate[Value]] = []
        for content in contents:
            if isinstance(content, str | int | float) and not isinstance(content, bool):
                marked = cast("Marked[Value]", self._meaning.marked(str(content)))
                reading = self.in_content(marked)
                if reading is not None and reading.reason != "contradiction":
                    candidates.append(Candidate(reading.verdict, 0, 0, "marked"))
        return decide(candidates)

    def _in_view(
        self, view: str, *, cut: bool, ended: bool, firm: bool = False
    ) -> Reading[Value] | None:
        """Read `view`. None where nothing in it looks like a verdict. `firm`: weak statements do
        not count."""
        marked = cast("Marked[Value]", self._meaning.marked(view))
        reading = decide(list(self.marks(marked, cut=cut)))
        if reading is not None:
            return reading
        stop = len(marked.text.rstrip())
        labels = list(self._in_text(marked, of_form(self.kind, "label")))
        labels = [each for each in labels if not cut or each.end < stop]
        lines = list(self.lines(marked, cut=cut))
        statements = self.statements(marked)
        reading = decide([each for each in [*labels, *lines] if each.rank or not marked.several])
        if reading is not None:
            statement = decide([each for each in statements if each.rank >= PLAIN])
            agreed = statement is None or statement.verdict in (None, reading.verdict)
            if agreed or reading.form not in ("first line", "last line"):
                return reading
            # A bare line may be a title.
            return Reading(None, reason="contradiction")
        least = max(int(marked.several), PLAIN * firm, _CONCLUDING * bool(labels))
        statements = [each for each in statements if each.rank >= least]
        reading = decide(statements)
        if reading is None or (not cut and (ended or ends_with(statements, marked.text))):
            return reading
        return Reading(None, reason="cut off")

    def marks(self, marked: Marked[Value], *, cut: bool) -> Iterator[Candidate[Value]]:
        for pattern in of_form(self.kind, "marked"):
            if cut and pattern.name == "whole number":
                continue
            for match in pattern.regex.finditer(marked.text):
                content = match.groupdict().get("content", match[0])
                if self._is_void(pattern, match) or "[[" in content[2:]:
                    continue
                reading = self.in_content(replace(marked, text=content))
                if reading is not None and reading.reason != "contradiction":
                    rank = _own_line(match)
                    yield Candidate(
                        reading.verdict, match.start(), match.end(), "marked", rank, pattern.name
                    )

    def _in_text(
        self, marked: Marked[Value], patterns: Sequence[Pattern]
    ) -> Iterator[Candidate[Value]]:
        """Yield what `patterns` match. A match that fills its line ranks higher."""
        for pattern in patterns:
            for match in pattern.regex.finditer(marked.text):
                candidate = self.candidate(pattern, match, marked)
                if candidate is not None:
                    whole = not match.groupdict().get("aspect")
                    rank = whole * (candidate.rank + _own_line(match))
                    yield replace(candidate, rank=rank)

    def statements(self, marked: Marked[Value]) -> list[Candidate[Value]]:
        """Find the statements, sentence by sentence, without questions."""
        candidates: list[Candidate[Value]] = []
        at = 0
        for end in [*(stop.end() for stop in _SENTENCE_END.finditer(marked.text)), None]:
            sentence = replace(marked, text=marked.text[at:end])
            if sentence.text.strip() and not sentence.text.rstrip(" \"')\n").endswith("?"):
                for each in self._in_sentence(sentence):
                    candidates.append(replace(each, start=at + each.start, end=at + each.end))
            at = end or 0
        return candidates

    def _in_sentence(self, sentence: Marked[Value]) -> Iterator[Candidate[Value]]:
        concludes = any(each.regex.search(sentence.text) for each in self._concludes)
        for pattern in of_form(self.kind, "stated", "lone mention"):
            for match in pattern.regex.finditer(sentence.text):
                candidate = self.candidate(pattern, match, sentence)
                if candidate is None:
                    continue
                rank = candidate.rank
                if any(each.regex.match(sentence.text, match.end()) for each in self._qualified):
                    rank = min(rank, self.weak)
                elif concludes and rank > 1:
                    rank = _CONCLUDING
                yield replace(candidate, rank=rank)

    def candidate(
        self, pattern: Pattern, match: re.Match[str], marked: Marked[Value]
    ) -> Candidate[Value] | None:
        if pattern.is_denied(match) or self._is_void(pattern, match):
            return None
        found, value = self.value(pattern, match, marked)
        if not found:
            return None
        form = cast("Form", pattern.form)
        return Candidate(value, match.start(), match.end(), form, pattern.rank, pattern.name)

    def _is_void(self, pattern: Pattern, match: re.Match[str]) -> bool:
        """Whether a guard stands before the match in its sentence, or behind it."""
        text = match.string
        start = _sentence_start(text, match.start(), otherwise=max(0, match.start() - 200))
        lead = text[start : match.end() - len(match[0].lstrip())]
        tail = text[match.end() : match.end() + 200]
        return any(
            each.guards(pattern) and each.regex.search(lead) for each in self._before
        ) or any(each.guards(pattern) and each.regex.match(tail) for each in self._after)


def _sentence_start(text: str, at: int, *, otherwise: int) -> int:
    """Return where the sentence around `at` begins. `otherwise`: where no sentence ends in the 200
    characters before."""
    # One character more: a full stop ends a sentence where a space follows.
    stops = _SENTENCE_END.finditer(text, max(0, at - 200), at + 1)
    return max([stop.end() for stop in stops if stop.end() <= at], default=otherwise)


def _own_line(match: re.Match[str]) -> int:
    """Return 1 where `match` fills its lines, otherwise 0."""
    text = match.string
    before = text[max(0, match.start() - 40) : match.start()].rsplit("\n", 1)[-1]
    after = text[match.end() : match.end() + 12].split("\n", 1)[0]
    return int(not before.strip(" #>-:\"'•|(") and not after.strip(" .!\"')]}|分"))
