"""Views of a judge's output: which of its words are its own, and which are quotations.

What the judge quotes counts less than its own words, in this order:
1. text outside quotation marks, backticks and blockquote lines (a value behind the judge's own
  label, Score: "3", is its own text);
2. what it quotes, unless the response contains it;
3. a quotation out of the response only where it ends the output as a bare verdict and 1 and 2 hold
  none. Without this a policy that
   writes every possible verdict could make honest ones unreadable, and so take its own bad rows out
   out of the loss.
Lines that only repeat the judge's prompt (see `echoes`) count in no view, unless one ends the output
behind words of the judge's own.
Time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmrl.rewards.judging.echoes import Prompt, asked

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
_LABEL_LENGTH = 60
_TRAILING = " \t\r\n.*_"
_OWN_WORDS = 3
"""Words of its own that a judge has written before a last line that stands in its prompt as well."""
_COMPARED = 256
"""So many quotations, from the last, are looked for in the response; those before them are taken
for copies."""


@dataclass(frozen=True, slots=True)
class _Quote:
    start: int
    end: int
    block: bool
    """A ``` block: many judges write their own verdicts in one."""
    own: bool
    """Behind nothing but a label of the judge's, on its line."""
    copied: bool


def views(
    text: str, response: str, quotes: re.Pattern[str] = QUOTES, *, prompt: str = ""
) -> Iterator[str]:
    """The judge's own words, then ever more of the text; each at full length, with spaces in place
    of what does not count. `prompt`: what the judge was asked, without the response."""
    question = asked(prompt)
    echoes = _without_conclusion(text, question.echoes(text))
    quotations = _quotes_in(text, response, quotes, question)
    copied = [quote for quote in quotations if quote.copied]
    foreign = [quote for quote in quotations if quote.copied or not (quote.block or quote.own)]
    yield _blanked(text, [*_spans(foreign), *echoes])
    if len(foreign) > len(copied):
        yield _blanked(text, [*_spans(copied), *echoes])
    if copied and copied[-1].own and not text[copied[-1].end :].strip(_TRAILING):
        yield _blanked(text, [*_spans(copied[:-1]), *echoes])


def _without_conclusion(text: str, echoes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The echoes but for one that ends the text behind words of the judge's own: it concludes in
    the form that it was asked for."""
    if not echoes or text[echoes[-1][1] :].strip(_TRAILING):
        return echoes
    words = re.findall(r"[^\W\d_]+", _blanked(text, echoes))
    return echoes[:-1] if len(words) >= _OWN_WORDS else echoes


def _spans(quotes: Sequence[_Quote]) -> list[tuple[int, int]]:
    return [(quote.start, quote.end) for quote in quotes]


def _blanked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    parts: list[str] = []
    at = 0
    for start, end in sorted(spans):
        parts.append(text[at:start])
        at = max(at, start)
        parts.append(" " * (end - at))
        at = max(at, end)
    return "".join([*parts, text[at:]])


def _quotes_in(text: str, response: str, quotes: re.Pattern[str], question: Prompt) -> list[_Quote]:
    """All quotations, in order and apart from each other."""
    spans: list[tuple[int, int, bool]] = []
    for start, end, block in _blocks(text):
        spans += (
            [(start, end, True)]
            if block
            else [(m.start(), m.end(), False) for m in quotes.finditer(text, start, end)]
        )
    wanted = _squeezed(response)
    first_compared = len(spans) - _COMPARED
    quotations: list[_Quote] = []
    for i, (start, end, block) in enumerate(spans):
        quotation = text[start:end]
        copied = bool(wanted) and (i < first_compared or _is_copy(quotation, wanted))
        copied = copied or (not block and question.has(quotation))
        quotations.append(_Quote(start, end, block, _stands_alone(text, start), copied))
    return quotations


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """The text in pieces (start, end, whether it is a ``` block)."""
    at = 0
    while (start := text.find("```", at)) >= 0 and (end := text.find("```", start + 3)) >= 0:
        yield at, start, False
        yield start, end + 3, True
        at = end + 3
    yield at, len(text), False


def _is_copy(quotation: str, wanted: str) -> bool:
    inner = _squeezed(re.sub(r"(?m)^[ \t]*>|^```\w{0,12}$", "", quotation)).strip(
        '`"“”「」『』«».…,;:!?'
    )
    return bool(inner) and inner in wanted


def _squeezed(text: str) -> str:
    """Without white space: copies are wrapped anew, and what judges read has spaces in its broken
    tokens."""
    return "".join(text.split())


def _stands_alone(text: str, start: int) -> bool:
    """Whether nothing but a label comes before `start` on its line. Blockquote lines are quotations
    by their form."""
    line = text.rfind("\n", max(0, start - _LABEL_LENGTH - 1), start) + 1
    far = line == 0 and start > _LABEL_LENGTH
    return (
        not far
        and text[start] not in "> \t"
        and _OWN_LABEL.fullmatch(text, line, start) is not None
    )
