"""Views of a judge's output: its own words and its quotations.

Quotations count less than the judge's own words, in this order:

    1. Text outside quotation marks, backticks and blockquote lines. A value behind the judge's own
       label, Score: "3", is its own text.
    2. Quotations that the response does not contain.
    3. A quotation out of the response, only where it ends the output as a bare verdict and 1 and 2
       hold none. Otherwise a policy that writes every possible verdict could make honest ones
       unreadable, and so take its own bad rows out of the loss.

Lines that only repeat the judge's prompt (see `echoes`) count in no view, unless one ends the
output behind words of the judge's own.
Time is linear in the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmrl.rewards.judging.repeats import Prompt, prepared_prompt

_PLAIN_QUOTE = r"""(?<![A-Za-z0-9])"[^"\n]*"(?![A-Za-z0-9])"""
_OTHER_QUOTES = r"`[^`\n]+`|“[^“”\n]+”|「[^「」\n]+」|『[^『』\n]+』|«[^«»\n]+»"
_LINE_QUOTE = r"^[ \t]{0,8}>[^\n]*"
QUOTES = re.compile(f"{_LINE_QUOTE}|{_OTHER_QUOTES}|{_PLAIN_QUOTE}", re.MULTILINE)
QUOTES_IN_JSON = re.compile(f"{_LINE_QUOTE}|{_OTHER_QUOTES}", re.MULTILINE)
"""Without quotation marks, which are part of JSON."""

_OWN_LABEL = re.compile(
    r"[\s*_#-]*(?:(?:(?:my|the|final|overall|total|better|best) ){0,3}"
    r"(?:score|rating|verdict|grade|judge?ment|choice|winner|answer|decision|preference|response|result)s?"
    r"|最终评分|评分|得分|分数|打分|结论)?[\s*_]*(?:[:\uff1a=]|is|为)?[\s*_]*",
    re.IGNORECASE,
)
_QUOTATION_MARKS = re.compile(r"(?m)^[ \t]*>|^```\w{0,12}$")
_LABEL_LENGTH = 60
_TRAILING = " \t\r\n.*_"
_OWN_WORDS = 3
"""Minimum number of the judge's own words before a last line that is also in its prompt."""
_COMPARED = 256
"""Number of quotations, from the last, that are searched for in the response; those before them
count as copies."""


@dataclass(frozen=True, slots=True)
class _Quote:
    start: int
    end: int
    block: bool
    """A ``` block: many judges write their own verdicts in one."""
    labelled: bool
    """Only a label of the judge's, or nothing, precedes it on its line."""
    copied: bool
    """The response, or the prompt, contains it."""


def views(
    text: str, response: str, quotes: re.Pattern[str] = QUOTES, *, prompt: str = ""
) -> Iterator[str]:
    """The judge's own words, then ever more of the text.

    Each view has the full length, with spaces in place of the excluded text. `prompt`: the judge's
    prompt without the response.
    """
    question = prepared_prompt(prompt)
    echoes = question.echoes(text)
    if echoes and not text[echoes[-1][1] :].strip(_TRAILING):
        # An echo that ends the text behind words of the judge's own is a conclusion in the
        # requested form.
        words = re.findall(r"[^\W\d_]+", _blanked(text, echoes))
        if len(words) >= _OWN_WORDS:
            echoes = echoes[:-1]
    quotations = _quotes_in(text, response, quotes, question)
    copied: list[tuple[int, int]] = []
    foreign: list[tuple[int, int]] = []
    for quote in quotations:
        span = (quote.start, quote.end)
        if quote.copied:
            copied.append(span)
        if quote.copied or not (quote.block or quote.labelled):
            foreign.append(span)
    yield _blanked(text, [*foreign, *echoes])
    if len(foreign) > len(copied):
        yield _blanked(text, [*copied, *echoes])
    last = next((quote for quote in reversed(quotations) if quote.copied), None)
    if last is not None and last.labelled and not text[last.end :].strip(_TRAILING):
        yield _blanked(text, [*copied[:-1], *echoes])


def _blanked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with spaces in place of the spans, which may overlap."""
    parts: list[str] = []
    position = 0
    for start, end in sorted(spans):
        parts.append(text[position:start])
        position = max(position, start)
        parts.append(" " * (end - position))
        position = max(position, end)
    return "".join([*parts, text[position:]])


def _quotes_in(text: str, response: str, quotes: re.Pattern[str], question: Prompt) -> list[_Quote]:
    """All quotations, in order and without overlaps."""
    spans: list[tuple[int, int, bool]] = []
    for start, end, block in _blocks(text):
        if block:
            spans.append((start, end, True))
            continue
        for match in quotes.finditer(text, start, end):
            spans.append((match.start(), match.end(), False))
    source = _squeezed(response)
    first_compared = len(spans) - _COMPARED
    quotations: list[_Quote] = []
    for i, (start, end, block) in enumerate(spans):
        quotation = text[start:end]
        copied = bool(source) and i < first_compared
        if source and not copied:
            content = _squeezed(_QUOTATION_MARKS.sub("", quotation)).strip('`"“”「」『』«».…,;:!?')
            copied = bool(content) and content in source
        copied = copied or (not block and question.has(quotation))
        line = text.rfind("\n", max(0, start - _LABEL_LENGTH - 1), start) + 1
        # A line may be too long for a label; a blockquote is a quotation by its form.
        labelled = (line > 0 or start <= _LABEL_LENGTH) and text[start] not in "> \t"
        labelled = labelled and _OWN_LABEL.fullmatch(text, line, start) is not None
        quotations.append(_Quote(start, end, block, labelled, copied))
    return quotations


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """The text in pieces (start, end, whether it is a ``` block)."""
    at = 0
    while (start := text.find("```", at)) >= 0 and (end := text.find("```", start + 3)) >= 0:
        yield at, start, False
        yield start, end + 3, True
        at = end + 3
    yield at, len(text), False


def _squeezed(text: str) -> str:
    """The text without white space: copies are wrapped anew, and neutralised texts have spaces in
    their broken tokens."""
    return "".join(text.split())
