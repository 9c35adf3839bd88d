"""Read a choice: what `levels` leaves open for choices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from rmrl.rewards.judging.choices import (
    FIRST,
    IDENTIFIER,
    MENTION,
    PRIVATE,
    SIDE_SCORE,
    Choices,
    Marked,
    Undecided,
    plain,
)
from rmrl.rewards.judging.json_fields import numbers_of
from rmrl.rewards.judging.levels import PLAIN, Reader
from rmrl.rewards.judging.patterns import Pattern, table
from rmrl.rewards.judging.reading import Candidate, Reading, decide

_CHOICE_FIELDS = re.compile(
    r"(?:final_)?(?:verdict|winner|answer|choice|decision|preference|preferred|judge?ment)"
    r"|(?:preferred|better|best)_(?:response|answer|output)|better|best|result|selection|selected"
    r"|chosen|label|pick|conclusion|prediction|outcome|rank|output",
    re.IGNORECASE,
)
_TITLE_WORDS = 4
_BEGINS = re.compile(
    rf"[\s\"'(\[#>•-]*(?:[0-9]{{1,2}}[.)]\s)?(?:({MENTION})|([A-Z]|[0-9]{{1,2}})(?=[.):]|\s*$))"
)
_TOGETHER = re.compile(
    rf"(?:\b(?P<lead>both|neither|either|between)\s)?(?:the\s)?({MENTION}),?\s?"
    rf"(?P<link>and|&|or|nor|vs|versus|/|与|和|跟)\s?(?:the\s)?({MENTION})",
    re.IGNORECASE,
)
_UNDECIDED: Sequence[Undecided] = ("tie", "both", "neither")
_SHORT_CONTENT = 12
_MENTION = re.compile(MENTION)
_SCORES = re.compile(r"\b(?:scores?|ratings?|rate|points|grades)\b|评分|得分", re.IGNORECASE)


class ChoiceReader(Reader[str]):
    kind = "choice"
    fields = (_CHOICE_FIELDS,)
    weak = 2

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self._choices = choices

    def marks(self, marked: Marked[str], *, cut: bool) -> Iterator[Candidate[str]]:
        """Yield marks, and the choice that is the whole text.

        In a text that was cut, the whole counts only if no longer choice begins like it.
        """
        content = marked.view.strip()
        names = self._choices.names
        longer = cut and any(name != content and name.startswith(content) for name in names)
        if content in names and not longer:
            yield Candidate(content, 0, len(content), "marked", 1)
        third = self._choices.third
        if third:
            marked = replace(marked, text=marked.text.replace(third, f"[[{chr(FIRST + 2)}]]"))
        yield from super().marks(marked, cut=cut)

    def in_json(self, view: str) -> Reading[str] | None:
        """Read a verdict's field, or else both sides' scores: {"scores": {"A": 8, "B": 6}}."""
        reading = super().in_json(view)
        if reading is not None or "{" not in view:
            return reading
        candidates: list[Candidate[str]] = []
        for scores in numbers_of(view):
            pairs = [(self._choices.of_match(SIDE_SCORE.fullmatch(n)), scores[n]) for n in scores]
            sides = [(side, score) for side, score in pairs if side in self._choices.sides]
            if len(sides) == 2 and len(dict(sides)) == len(self._choices.sides):
                (one, first), (other, second) = sides
                verdict = self._of_scores(first, second, (str(one), str(other)))
                candidates.append(Candidate(verdict, 0, 0, "marked"))
        return decide(candidates)

    def in_content(self, marked: Marked[str]) -> Reading[str] | None:
        content = marked.text.strip(" .!\"'")
        named = self._choices.of_match(IDENTIFIER.fullmatch(content))
        # A small letter between marks may be a variable. A field's text is its own view.
        if named is not None and (len(content) > 1 or marked.view == marked.text):
            return Reading(named)
        if len(marked.text) <= _SHORT_CONTENT:
            marked = self._choices.with_identifiers(marked)
        bare = table()["bare line"]
        match = bare.regex.fullmatch(marked.text)
        candidate = match and self.candidate(bare, match, marked)
        if candidate:
            return decide([candidate])
        return decide(self.statements(marked))

    def value(
        self, pattern: Pattern, match: re.Match[str], marked: Marked[str]
    ) -> tuple[bool, str | None]:
        undecided: Undecided | None = next(
            (kind for kind in _UNDECIDED if match.groupdict().get(kind)), None
        )
        mention = pattern.mention(match)
        if pattern.prefers in _UNDECIDED:
            undecided = cast("Undecided", pattern.prefers)
        if undecided is not None:
            return True, self._choices.of_undecided(undecided)
        if not mention:
            return False, None
        name = self._name(mention, marked)
        if pattern.form == "stated" and name not in self._choices.sides:
            return False, None
        if pattern.prefers == "other":
            others = [side for side in self._choices.sides if side != name]
            if len(others) != 1:
                return False, None
            name = others[0]
        return name is not None, name

    def _name(self, mention: str, marked: Marked[str]) -> str | None:
        """The choice that a mention, a letter or a number names."""
        if PRIVATE.match(mention):
            return marked.value(mention)
        return self._choices.of_identifier(mention)

    def statements(self, marked: Marked[str]) -> list[Candidate[str]]:
        """Find statements, and scores side by side.

        "Both are good" beside a statement on one choice only begins a comparison.
        """
        merged = replace(marked, text=_TOGETHER.sub(_merged, marked.text))
        candidates = super().statements(merged)
        if _MENTION.search(merged.text):
            candidates = [each for each in candidates if each.pattern != "both"]
        return [*candidates, *self.side_scores(marked)]

    def side_scores(self, marked: Marked[str]) -> Iterator[Candidate[str]]:
        """The choice with the higher score, as in "A: 8/10, B: 6/10"."""
        pattern = table()["side score"]
        scores = list(pattern.regex.finditer(marked.text))
        names = [marked.value(score["x1"]) for score in scores]
        if len(names) != 2 or set(names) != set(self._choices.sides) or names[0] == names[1]:
            return
        if scores[0]["high"] != scores[1]["high"]:
            return
        # Two answers of the responses, too, stand side by side.
        start = scores[0].start()
        scored = all(score["high"] or score["word"] for score in scores)
        alone = not pattern.regex.sub("", marked.text).strip(" ,.;\n")
        if scored or alone or _SCORES.search(marked.text[max(0, start - 40) : start]):
            verdict = self._of_scores(scores[0]["s1"], scores[1]["s1"], names)
            yield Candidate(verdict, start, scores[1].end(), "stated", PLAIN, pattern.name)

    def _of_scores(
        self, first: str | float, second: str | float, names: Sequence[str]
    ) -> str | None:
        lead = float(first) - float(second)
        if lead == 0:
            return self._choices.of_undecided("tie")
        return names[int(lead < 0)]

    def lines(self, marked: Marked[str], *, cut: bool) -> Iterator[Candidate[str]]:
        """Read a first or last line that is nothing but a verdict, and a text that begins with
        "B. Because ..."."""
        both = zip(plain(marked.view).split("\n"), marked.text.split("\n"), strict=True)
        lines = [line for line in both if line[0].strip()]
        if not lines or (cut and len(lines) == 1):
            return
        bare, opening, scores = (table()[n] for n in ("bare line", "opening", "two scores"))
        first = bare.regex.fullmatch(lines[0][1]) or opening.regex.match(lines[0][1])
        yield from self._line(first, lines[0][0], lines[1:], marked)
        two = scores.regex.fullmatch(lines[0][0])
        if two is not None and len(self._choices.sides) == 2:
            winner = self._of_scores(two["s1"], two["s2"], self._choices.sides)
            yield Candidate(winner, 0, 0, "first line", 1, scores.name)
        if not cut and len(lines) > 1:
            last = bare.regex.fullmatch(lines[-1][1])
            for each in self._line(last, lines[-1][0], lines[:-1], marked):
                yield replace(each, form="last line", start=len(marked.text))

    def _line(
        self,
        match: re.Match[str] | None,
        line: str,
        others: Sequence[tuple[str, str]],
        marked: Marked[str],
    ) -> Iterator[Candidate[str]]:
        """Read one line. A title or an entry in a list is no verdict: then another line begins with
        another choice.

        Under a line that is one letter or number, only short lines and entries can be such
        counterparts.
        """
        if match is None:
            return
        (pattern,) = [each for each in table().values() if each.regex is match.re]
        found = self.candidate(pattern, match, marked)
        if found is None:
            return
        short = len(line.strip(" \"'()[].,:#!")) <= 2 and match.end() == len(match.string)
        for other, text in others:
            begins = _BEGINS.match(text)
            if begins is None:
                continue
            name = self._name(begins[1] or begins[2], marked)
            if name in (None, found.value):
                continue
            titled = len(other.split()) <= _TITLE_WORDS and other.rstrip()[-1:] not in ".!?。"
            if not short or titled or re.match(r"\s*\(?\w[).:]\s", other):
                return
        yield replace(found, rank=1)


def _merged(match: re.Match[str]) -> str:
    """Return one word for two choices that do or are the same."""
    if match[2] == match[4]:
        return match[0]
    lead = (match["lead"] or "").lower()
    link = match["link"].lower()
    if lead == "neither" or link == "nor":
        return "neither"
    if lead in ("either", "between") or link in ("or", "vs", "versus", "/"):
        return "one"
    return "both"
