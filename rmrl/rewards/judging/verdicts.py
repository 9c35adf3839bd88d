"""Reading a judge's verdict: the last one in its own words. For use in `rm_postprocess`.

    from rmrl.rewards.judging.verdicts import last_number
    last_number("It says \\"10/10\\", but step 2 is wrong. Score: 3/10", 0, 10)  # 3.0

What the judge quotes counts less than what it says, in this order:
1. text outside quotation marks, backticks and blockquote lines (a value behind the judge's own label, Score: "3", is its own text);
2. what it quotes, unless the response contains it: pass `response`, as the judge read it or as the policy wrote it;
3. a quotation out of the response only where it ends the output as a bare verdict and 1 and 2 found none. Without this a policy that
   writes every possible verdict could make honest ones unreadable, and so take its own bad rows out of the loss.
Nothing is evaluated, and time is linear in the length of the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, cast

Found = TypeVar("Found")

_PLAIN_QUOTE = r"""(?<![A-Za-z0-9])"[^"\n]*"(?![A-Za-z0-9])"""
_OTHER_QUOTES = r"`[^`\n]+`|“[^“”\n]+”|「[^「」\n]+」|『[^『』\n]+』|«[^«»\n]+»"
_LINE_QUOTE = r"^[ \t]{0,8}>[^\n]*"
_QUOTES = re.compile(f"{_LINE_QUOTE}|{_OTHER_QUOTES}|{_PLAIN_QUOTE}", re.MULTILINE)
_QUOTES_IN_JSON = re.compile(f"{_LINE_QUOTE}|{_OTHER_QUOTES}", re.MULTILINE)
"""Without quotation marks, which are part of JSON."""

_OWN_LABEL = re.compile(
    r"[\s*_#-]*(?:(?:(?:my|the|final|overall|total) ){0,3}(?:score|rating|verdict|grade|judge?ment|choice)s?"
    r"|最终评分|评分|得分|分数|打分|结论)?[\s*_]*(?:[:\uff1a=]|is|为)?[\s*_]*",
    re.IGNORECASE,
)
_LABEL_LENGTH = 60
_COMPARED = 256
"""So many quotations, from the last, are looked for in the response; those before them are taken for copies."""


def last_number(text: str, low: float, high: float, *, response: str = "") -> float | None:
    """The last number from `low` to `high`, both included; None without one.

    Of "7/10" and "7 out of 10" the 7 counts where `high` is 10 or infinite, and else nothing. The scale itself ("0-10", "满分10分") and,
    unless `high` is 100, percentages are no verdicts, nor are the numbers of a list's entries.
    """
    return _first_found(text, response, lambda view: _number_in(view, low, high))


def last_tagged(text: str, tag: str, *, response: str = "") -> str | None:
    """What stands in the last complete <tag>...</tag>, stripped; case does not matter. None without one."""
    opening, closing = (re.compile(rf"<{slash}{re.escape(tag)}>", re.IGNORECASE) for slash in ("", "/"))
    return _first_found(text, response, lambda view: _tagged_in(view, text, (opening, closing)))


def last_json_field(text: str, field: str, *, response: str = "") -> Any:
    """The value of `field` in the last JSON object that has it; None without one, and where it is null.

    A field of the object itself comes before one of objects within it. Where no object can be read (a stray quotation mark, an output that
    was cut), the last `"field": scalar` that follows a brace or a comma stands in.
    """
    return _first_found(text, response, lambda view: _json_in(view, field), quotes=_QUOTES_IN_JSON)


def last_choice(text: str, choices: Sequence[str], *, response: str = "") -> str | None:
    """The last of `choices` that stands as a word of its own, spelt as in `choices`; None without one.

    [[A]] comes before "verdict: A", and that before an A elsewhere. Case matters only in choices of one letter: "a" is seldom a verdict.
    """
    patterns = _choice_patterns(choices)
    spelt = {choice.casefold(): choice for choice in choices if len(choice) > 1} | {
        choice: choice for choice in choices if len(choice) == 1
    }

    def find(view: str) -> str | None:
        for pattern in patterns:
            matches = [match[1] for match in pattern.finditer(view)]
            if matches:
                return spelt.get(matches[-1]) or spelt[matches[-1].casefold()]
        return None

    return _first_found(text, response, find)


# --- what is the judge's own ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Quote:
    start: int
    end: int
    block: bool
    """A ``` block: many judges write their own verdicts in one."""
    own: bool
    """Behind nothing but a label of the judge's, on its line."""
    copied: bool


def _first_found(text: str, response: str, find: Callable[[str], Found | None], *, quotes: re.Pattern[str] = _QUOTES) -> Found | None:
    """`find` on the judge's own words, then on ever more of the text; what it must not see is blanked, so places agree."""
    for view in _views(text, _quotes_in(text, response, quotes)):
        found = find(view)
        if found is not None:
            return found
    return None


def _views(text: str, quotes: Sequence[_Quote]) -> Iterator[str]:
    """Each is `text` at its full length with spaces in place of what does not count."""
    copied = [quote for quote in quotes if quote.copied]
    foreign = [quote for quote in quotes if quote.copied or not (quote.block or quote.own)]
    yield _blanked(text, foreign)
    if len(foreign) > len(copied):
        yield _blanked(text, copied)
    if copied and copied[-1].own and not text[copied[-1].end :].strip(" \t\r\n.*_"):
        yield _blanked(text, copied[:-1])


def _blanked(text: str, quotes: Sequence[_Quote]) -> str:
    parts, at = [], 0
    for quote in quotes:
        parts += [text[at : quote.start], " " * (quote.end - quote.start)]
        at = quote.end
    return "".join([*parts, text[at:]])


def _quotes_in(text: str, response: str, quotes: re.Pattern[str]) -> list[_Quote]:
    """All quotations, in order and apart from each other."""
    spans: list[tuple[int, int, bool]] = []
    for start, end, block in _blocks(text):
        spans += [(start, end, True)] if block else [(m.start(), m.end(), False) for m in quotes.finditer(text, start, end)]
    wanted = _squeezed(response)
    first_compared = len(spans) - _COMPARED
    found: list[_Quote] = []
    for i, (start, end, block) in enumerate(spans):
        copied = bool(wanted) and (i < first_compared or _is_copy(text[start:end], wanted))
        found.append(_Quote(start, end, block, _stands_alone(text, start), copied))
    return found


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """The text in pieces (start, end, whether it is a ``` block)."""
    at = 0
    while (start := text.find("```", at)) >= 0 and (end := text.find("```", start + 3)) >= 0:
        yield at, start, False
        yield start, end + 3, True
        at = end + 3
    yield at, len(text), False


def _is_copy(quotation: str, wanted: str) -> bool:
    inner = _squeezed(re.sub(r"(?m)^[ \t]*>|^```\w{0,12}$", "", quotation)).strip('`"“”「」『』«».…,;:!?')
    return bool(inner) and inner in wanted


def _squeezed(text: str) -> str:
    """Without white space: copies are wrapped anew, and what judges read has spaces in its broken tokens."""
    return "".join(text.split())


def _stands_alone(text: str, start: int) -> bool:
    """Whether nothing but a label comes before `start` on its line. Blockquote lines are quotations by their form."""
    line = text.rfind("\n", max(0, start - _LABEL_LENGTH - 1), start) + 1
    far = line == 0 and start > _LABEL_LENGTH
    return not far and text[start] not in "> \t" and _OWN_LABEL.fullmatch(text, line, start) is not None


# --- what is a verdict ---------------------------------------------------------------------------------------------

_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_])(?:(?<![.,])|(?<=\.\.))[-+]?[0-9]{1,15}(?:,[0-9]{3}){0,5}(?:\.[0-9]{1,15})?(?![A-Za-z0-9_]|\.[0-9])( ?%)?"
)
_RATIO = {"/", "out of", "of"}
_RANGE = {"-", "\u2013", "\u2014", "~", "to", "至", "到", ".."}
_MAXIMUM = ("满分", "out of", "maximum of")
_LIST_ENTRY = re.compile(r"^[ \t]{0,8}[0-9]{1,3}[.)](?=[ \t]+\S)", re.MULTILINE)


def _number_in(view: str, low: float, high: float) -> float | None:
    entries = {match.start() for match in _LIST_ENTRY.finditer(view)}
    entries = entries if len(entries) > 1 else set()  # one alone may be the verdict: "7. It is mostly right."
    matches = [m for m in _NUMBER.finditer(view) if m.start() - _indent(view, m.start()) not in entries]
    values = [float(m[0].rstrip(" %").replace(",", "")) for m in matches]
    counts = [low <= v <= high and (m[1] is None or high == 100) for m, v in zip(matches, values, strict=True)]
    for i, (before, after) in enumerate(pairwise(matches)):
        between = view[before.end() : min(after.start(), before.end() + 12)].strip().lower()
        if between in _RATIO:
            counts[i], counts[i + 1] = counts[i] and (values[i + 1] == high or high == math.inf), False
        elif between in _RANGE and (values[i], values[i + 1]) == (low, high):
            counts[i] = counts[i + 1] = False
    for i in reversed(range(len(matches))):
        lead = view[max(0, matches[i].start() - 14) : matches[i].start()].rstrip().lower()
        if counts[i] and not (values[i] == high and lead.endswith(_MAXIMUM)):
            return values[i]
    return None


def _indent(view: str, start: int) -> int:
    """Blanks before `start`, at most 8."""
    lead = view[max(0, start - 8) : start]
    return len(lead) - len(lead.rstrip(" \t"))


def _tagged_in(view: str, text: str, tags: tuple[re.Pattern[str], re.Pattern[str]]) -> str | None:
    opening, closing = tags
    closes = [match.start() for match in closing.finditer(view)]
    opens = [match.end() for match in opening.finditer(view)]
    while closes and opens:
        if opens[-1] > closes[-1]:
            opens.pop()  # never closed
            continue
        return text[opens[-1] : closes[-1]].strip()
    return None


_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_READ_AT_MOST = 8
"""Times that a character is looked at while objects are searched: deep nests of broken ones would take quadratic time."""
_SEARCHED = 50_000
"""Characters, from the end, in which objects are searched: every brace that opens none costs time in proportion."""


def _json_in(view: str, field: str) -> Any:
    found = None
    for value in _objects(view[-_SEARCHED:]):
        inner = _field_of(value, field)
        found = inner if inner is not None else found
    if found is not None:
        return found
    scalar = r'(-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![0-9.eE])|"(?:[^"\\\n]|\\.)*+"|true|false)'
    loose = re.compile(rf"[{{,]\s{{0,64}}{re.escape(json.dumps(field, ensure_ascii=False))}\s{{0,64}}:\s{{0,64}}{scalar}")
    matches = [match[1] for match in loose.finditer(view)]
    try:
        return json.loads(matches[-1], strict=False) if matches else None
    except ValueError:
        return None


def _objects(view: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects, in order."""
    budget, at = _READ_AT_MOST * len(view), view.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(view, at)
            yield cast("dict[str, Any]", value)
        except json.JSONDecodeError as error:
            budget -= error.pos - at
            end = at + 1 if budget > 0 else max(error.pos, at + 1)
        except (ValueError, RecursionError):  # a number of thousands of digits; a nest of thousands
            end = at + 1_000
        at = view.find("{", end)


def _field_of(value: Any, field: str) -> Any:
    """Breadth first; what is nearest to the outside wins."""
    level: list[Any] = [value]
    while level:
        for each in level:
            if isinstance(each, dict) and each.get(field) is not None:
                return each[field]
        level = [inner for each in level if isinstance(each, dict | list) for inner in (each.values() if isinstance(each, dict) else each)]
    return None


def _choice_patterns(choices: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    words = "|".join(_word(choice) for choice in sorted(choices, key=len, reverse=True))
    label = r"(?i:verdict|answer|choice|winner|decision|label|结论|答案)(?i:\s{1,3}is)?[\s*_]{0,4}[:\uff1a=]?[\s*_\"'`(\[]{0,6}"
    return tuple(re.compile(form) for form in (rf"\[\[\s{{0,3}}({words})\s{{0,3}}\]\]", rf"{label}({words})", f"({words})"))


def _word(choice: str) -> str:
    edge_before, edge_after = (r"[A-Za-z0-9_]" if end.isascii() and end.isalnum() else "" for end in (choice[:1], choice[-1:]))
    pattern = re.escape(choice) if len(choice) == 1 else f"(?i:{re.escape(choice)})"
    return (f"(?<!{edge_before})" if edge_before else "") + pattern + (f"(?!{edge_after})" if edge_after else "")
