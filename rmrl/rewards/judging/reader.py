"""Reading a judge's verdict: which choice, or which number.

In this order, the first that is there deciding:
1. marked: [[A]], \\boxed{A}, <verdict>A</verdict>, a JSON field, or nothing but the verdict;
2. a label ("Verdict: A", "Final score: 7/10"), or a first or last line that is nothing but the
  verdict;
3. a statement: "A is better", "I prefer A", "both are equally good"; of numbers "I give it a 7" and
  "7/10";
4. of numbers a lone mention: the only one, to which a word of scoring leads.
The forms are the table `patterns.yaml`; what has none of them is no verdict. What contradicts
itself on its strongest level is no verdict, nor is a text of the levels 3 and 4 that breaks off in
mid-sentence. A verdict behind words of revision voids those before them. Quotations count less
than the judge's own words (see `quotations`), thinking blocks do not count. Nothing is evaluated,
and time is linear in the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from rmrl.rewards.judging.choice_reader import ChoiceReader
from rmrl.rewards.judging.choices import Choices, Marked
from rmrl.rewards.judging.levels import Reader
from rmrl.rewards.judging.numbers import Scale
from rmrl.rewards.judging.patterns import Pattern, of_form, table
from rmrl.rewards.judging.reading import Candidate, Reading

_NUMBER_FIELDS = re.compile(
    r"(?:(?:final|overall|total|quality)_)?(?:score|rating|grade|verdict|mark)|overall"
    r"|评分|得分|分数|总分",
    re.IGNORECASE,
)
_VAGUE_FIELDS = re.compile(r"result|value", re.IGNORECASE)
"""Fields that may as well hold what the response computes: read where there is no other."""


def read_choice(
    text: str,
    choices: Sequence[str],
    *,
    response: str = "",
    prompt: str = "",
    cut: bool = False,
    no_preference: Literal["tie", "none"] = "tie",
) -> Reading[str]:
    """The choice that a judge made, spelt as in `choices`.

    Letters and numbers may stand with a noun or as an ordinal: of ["A", "B"], "Output (a)",
    "Assistant A", "Response 1" and "the first answer" are A. Case matters only in single letters:
    "a" is seldom a verdict. `no_preference`: what "both are equally good" and "neither is
    acceptable" count as where a tie is a choice. The word "tie" itself always is one. `cut`: the
    text was ended by its token limit. `response`: the text that was judged, so that copies out of
    it do not count; `prompt`: the rest of the judge's prompt, whose lines, repeated, do not count
    either (see `repeats`).
    """
    reader = ChoiceReader(Choices(choices, no_preference=no_preference))
    return reader.read(text, response=response, prompt=prompt, cut=cut)


def read_number(
    text: str, low: float, high: float, *, response: str = "", prompt: str = "", cut: bool = False
) -> Reading[float]:
    """The number from `low` to `high`, both included, that a judge gave.

    Of "7/10" and "7 out of 10" the 7 counts where `high` is 10 or infinite, and else nothing. The
    scale itself ("0-10", "满分10分"), the numbers of a list's entries and, unless `high` is 100,
    percentages are no verdicts, nor is a number that the text may have computed. Labels with
    "final" or "overall" come before plain ones, and those before ones of an aspect ("Clarity
    score"), which count for the whole only where no other number stands. `cut`, `response` and
    `prompt` as in `read_choice`.
    """
    reader = NumberReader(Scale(low, high))
    return reader.read(text, response=response, prompt=prompt, cut=cut)


class NumberReader(Reader[float]):
    kind = "number"
    fields = (_NUMBER_FIELDS, _VAGUE_FIELDS)
    weak = 0

    def in_content(self, marked: Marked[float]) -> Reading[float] | None:
        whole = table()["whole number"]
        match = whole.regex.match(marked.text)
        mention = match and whole.mention(match)
        if not mention:
            return None
        return Reading(marked.value(mention))

    def value(
        self, pattern: Pattern, match: re.Match[str], marked: Marked[float]
    ) -> tuple[bool, float | None]:
        mention = pattern.mention(match)
        if mention is None:
            return False, None
        return True, marked.value(mention)

    def lines(self, marked: Marked[float], *, cut: bool) -> Iterator[Candidate[float]]:
        stop = len(marked.text.rstrip())
        for candidate in self._in_text(marked, of_form("number", "first line", "last line")):
            if not cut or candidate.end < stop:
                yield candidate
