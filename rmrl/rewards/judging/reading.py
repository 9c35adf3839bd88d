"""The result of reading a verdict, and the rules that all readers share: ranks, contradictions,
revisions, texts that were cut."""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

Form = Literal["marked", "label", "first line", "last line", "stated", "lone mention"]
"""The form in which a verdict was read, from the strongest to the weakest. The first three after
"marked" are equally strong."""
Reason = Literal["contradiction", "cut off", "no preference", "no verdict"]
"""Why there is no verdict. "no preference": both, neither or a tie, where that counts as none."""

Value = TypeVar("Value", str, float)


@dataclass(frozen=True, slots=True)
class Reading(Generic[Value]):
    """A verdict with its form, or None with a reason."""

    verdict: Value | None
    form: Form | None = None
    reason: Reason | None = None
    pattern: str | None = field(default=None, compare=False)
    """The name of the pattern in `patterns.yaml` that the verdict matched."""


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Value]):
    """Text that reads like a verdict.

    `value` None: it states that nothing is preferred, and that counts as no verdict.
    """

    value: Value | None
    start: int
    end: int
    form: Form
    rank: int = 0
    """Among candidates of one level only those of the highest rank count."""
    pattern: str | None = None


EXPLANATIONS: Mapping[Reason, str] = {
    "contradiction": "the judge contradicts itself",
    "cut off": "the text breaks off before a verdict",
    "no preference": "the judge prefers neither",
    "no verdict": "no verdict",
}
"""Why there is no verdict. The sentence goes on with "in <the text>"."""

_ENDED = re.compile(r"[.!?。！？…;；:：\"'”’」』)\]}>*_`|~】）]\s*$|[^\w\s,，、(\[{<&/+=-]\s*$")
_TRAILS_OFF = re.compile(
    r"(?:[,，、(\[{&/+=-]|\b(?:a|an|the|and|or|but|nor|because|since|as|than|that|which|who"
    r"|whose|while|although|though|if|whether|of|to|in|on"
    r"|at|by|for|from|with|without|into|is|are|was|were|be|being|has|have|had|does|do|did|not"
    r"|it|its|their|this|these|more|most|less|very"
    r"|response|output|assistant|Response|Output|Assistant))\s*$"
)
_SENTENCE_END = re.compile(r"[.!?。！？][\"'”’)\]*_]{0,4}(?=\s)|[。！？]|\n")


def decide(candidates: Sequence[Candidate[Value]]) -> Reading[Value] | None:
    """The verdict by one level's candidates, None without candidates.

    Those of the highest rank count. Where they differ they contradict each other.
    """
    if not candidates:
        return None
    highest = max(candidate.rank for candidate in candidates)
    strongest = [candidate for candidate in candidates if candidate.rank == highest]
    last = max(strongest, key=lambda candidate: candidate.start)
    if len({candidate.value for candidate in strongest}) > 1:
        return Reading(None, reason="contradiction")
    reason = "no preference" if last.value is None else None
    return Reading(last.value, last.form, reason, last.pattern)


def ends_with(candidates: Sequence[Candidate[Value]], text: str) -> bool:
    """Whether the text ends a few words behind the last candidate."""
    end = max((each.end for each in candidates), default=0)
    rest = text[end:].strip(" \n\"')]")
    if len(rest.split()) > _CLOSING_WORDS or re.search(r"[.!?,;(\n]", rest):
        return False
    return not trails_off(f" {rest}")


def ends_mid_sentence(text: str) -> bool:
    """Whether `text` evidently breaks off.

    It then ends with a comma, an opening bracket or a word that ends no sentence, or without the
    full stop that its other sentences have. Entries of lists need none, nor does a text without any
    full stop.
    """
    text = text.rstrip()
    if not text or _ENDED.search(text[-8:]):
        return False
    stops = 0
    line_breaks = 0
    tail_start = 0
    for match in _SENTENCE_END.finditer(text):
        tail_start = match.end()
        line = text[max(0, tail_start - 12) : tail_start - 1]
        if text[tail_start - 1] != "\n":
            stops += 1
        elif line.rstrip(" \t\n*_")[-1:] not in ".!?。！？:：":
            line_breaks += 1
    tail = text[tail_start:].strip()
    if trails_off(tail):
        return len(tail.split()) > 1
    if tail_start == 0:
        return tail[:1].isupper() and len(tail.split()) > _ONE_SENTENCE
    is_entry = re.match(r"[-*•#|>]|\d{1,2}[.)]", tail) is not None
    return stops > line_breaks and not is_entry


def trails_off(text: str) -> bool:
    """Whether `text` ends with a comma, an opening bracket or a word that ends no sentence."""
    return _TRAILS_OFF.search(text[-24:]) is not None


_CLOSING_WORDS = 3
_ONE_SENTENCE = 12
"""Maximum number of words in a text without any full stop that counts as whole."""
