"""The result of reading a verdict, and the rules that all readers share: ranks, contradictions,
revisions, texts that were cut."""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Form = Literal["marked", "label", "first line", "last line", "stated", "lone mention"]
"""The form in which a verdict was read, from the strongest to the weakest; the first three after
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


EXPLANATIONS: Mapping[Reason, str] = {
    "contradiction": "the judge contradicts itself",
    "cut off": "the text breaks off before a verdict",
    "no preference": "the judge prefers neither",
    "no verdict": "no verdict",
}
"""Why there is no verdict; the sentence goes on with "in <the text>"."""

_REVISION = re.compile(
    r"\bActually\b|\bactually,|\b(?:on second thoughts?|wait|scratch that)\b|\bcorrection\s?[:,]"
    r"|\b(?:corrected|revised|updated|amended|adjusted|changed|new) (?:final |overall )?"
    r"(?:verdict|score|rating|grade|judge?ment|choice|decision|preference)\b"
    r"|\b(?:I|me|must|to) (?:revise|reconsider|correct (?:myself|my|that))\b"
    r"|\breconsider(?:ed|ing)\b|\b(?:up)?on (?:further )?reflection\b"
    r"|\bchang(?:ed?|ing) my (?:mind|verdict|score|rating|answer)\b|\bI was wrong\b"
    r"|\bbut no\s?[:,]|\bno,? rather\b|更正|修正|重新考虑",
    re.IGNORECASE,
)
_REVISIONS = 3
"""Number of revisions, from the last, behind which a verdict is looked for."""
_ENDED = re.compile(r"[.!?。！？…;；:：\"'”’」』)\]}>*_`|~】）]\s*$|[^\w\s,，、(\[{<&/+=-]\s*$")
_TRAILS_OFF = re.compile(
    r"(?:[,，、(\[{&/+=-]|\b(?:a|an|the|and|or|but|nor|because|since|as|than|that|which|who"
    r"|whose|while|although|though|if|whether|of|to|in|on"
    r"|at|by|for|from|with|without|into|is|are|was|were|be|being|has|have|had|does|do|did|not"
    r"|it|its|their|this|these|more|most|less|very"
    r"|response|output|assistant|Response|Output|Assistant))\s*$"
)
_SENTENCE_END = re.compile(r"[.!?。！？][\"'”’)\]*_]{0,4}(?=\s)|[。！？]|\n")


def revised_parts(text: str) -> list[str]:
    """The ends of `text` from each of its last sentences that revise a verdict ("on second
    thought", "correction"), the shortest first."""
    parts: list[str] = []
    for revision in reversed(list(_REVISION.finditer(text))[-_REVISIONS:]):
        lead = text[max(0, revision.start() - 200) : revision.start()]
        stops = list(re.finditer(r"[.!?](?=\s)|[。;\n]", lead))
        start = revision.start() - len(lead) + stops[-1].end() if stops else revision.start()
        parts.append(text[start:])
    return parts


def decide(candidates: Sequence[Candidate[Value]]) -> Reading[Value] | None:
    """The verdict of the candidates of one level; None without candidates.

    Those of the highest rank count; where they differ they contradict each other.
    """
    if not candidates:
        return None
    highest = max(candidate.rank for candidate in candidates)
    strongest = [candidate for candidate in candidates if candidate.rank == highest]
    last = max(strongest, key=lambda candidate: candidate.start)
    if len({candidate.value for candidate in strongest}) > 1:
        return Reading(None, reason="contradiction")
    reason = "no preference" if last.value is None else None
    return Reading(last.value, last.form, reason)


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


_ONE_SENTENCE = 12
"""Maximum number of words of a text without any full stop that counts as whole."""
