"""The levels on which a choice is read from one view of a judge's output; see `reader` for their
order."""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import re
from collections.abc import Iterator

from rmrl.rewards.judging.choices import MENTION, Choices, plain
from rmrl.rewards.judging.json_fields import fields_of
from rmrl.rewards.judging.preferences import PLAIN, stated
from rmrl.rewards.judging.reading import Candidate, Form, Reading, decide, trails_off

_NAMES = (
    "verdict|final_verdict|winner|answer|final_answer|choice|final_choice|decision|final_decision|preference|preferred|preferred_response"
    "|judg(?:e)?ment|final_judg(?:e)?ment|better|better_response|better_answer|better_output|best|best_response|result|selection|selected"
    "|chosen|label|pick|conclusion|prediction|outcome|rank|output"
)
_FIELD = re.compile(_NAMES, re.IGNORECASE)
_BRACKETS = re.compile(r"\[\[([^\[\]\n]{1,60})\]\]|\\boxed\s?\{([^{}\n]{1,60})\}")
_TAGGED = re.compile(rf"<({_NAMES})>([^<>]{{1,2000}})</\1>", re.IGNORECASE)
_COMPARED = re.compile(rf"({MENTION})\s?(>{{1,3}}|<{{1,3}}|={{1,2}}|≫|≪)\s?({MENTION})")
_TIE_WORD = re.compile(
    r"(?:it(?:'s| is) )?(?:an? )?(?:tie|tied|draw|equal|equally good|even|same|both|neither"
    r"|both are equal(?:ly good)?|no preference)",
    re.I,
)

_LABEL = (
    r"(?<![A-Za-z_])(?:(?:my|the|final|overall|evaluation|response|preferred"
    r"|correct) ){0,3}(?:verdict|winner|decision|choice|answer|preference"
    r"|preferred(?: \w{2,12})?"
    r"|judge?ment|conclusion|result|selection|pick|outcome|label|(?:better|best|winning"
    r"|superior) (?:response|answer|output|assistant|one|option|choice|summary|candidate"
    r"|model))s?\]?"
    r"|(?:最终)?(?:结论|答案|判断|裁决|选择|结果|胜者|获胜者|评判)|更好的(?:回答|回复)|\[(?:RESULT|VERDICT|FINAL"
    r" VERDICT"
    r"|ANSWER|WINNER)\]"
)
_LINK = (
    r"(?:\s?\([^()\n]{0,40}\))?\s{0,3}(?:(?:is|was|goes to|would be|为|是)\b\s?:?|[:=]{1,2}>?|->"
    r"|→|为|是|(?<=\])|\n)\s{0,3}(?:that\s)?"
)
_END = (
    r"(?=\s*(?:$|\n|[.,;!)\]}\"'”—–|:(]|-{1,2}\s|because\b|since\b|as\b|for\b|due\b|with\b"
    r"|by\b|overall\b|wins\b|over\b|>|is\s(?:\w+ly\s)?(?:the\s)?"
    r"(?:much\s|slightly\s|clearly\s)?(?:better|best|superior|preferred|preferable|winner)\b))"
)
_OPENING = r"[\"'“(\[{<\s]{0,4}(?:the\s)?"
_LABELLED = re.compile(
    rf"(?:{_LABEL}){_LINK}{_OPENING}(?:(?P<name>{MENTION})|(?P<id>[A-Z]|[0-9]{{1,2}})"
    rf"|(?P<tie>{_TIE_WORD.pattern}))(?![\w+]){_END}",
    re.I,
)
_CONDITION = re.compile(r"\b(?:if|whether|unless|when)\b[^.!?\n,]*$", re.IGNORECASE)
_BARE = re.compile(
    rf"[\s\"'“”(\[#>•\-]*(?:the\s)?(?:(?P<name>{MENTION})(?:\s(?:is\s(?:the\s)?(?:better|best"
    rf"|preferred|winner)(?:\s\w+)?|wins))?"
    rf"|(?P<id>[A-Z]|[0-9]{{1,2}})|(?P<tie>{_TIE_WORD.pattern}))[\s\"'“”)\].!]*",
)
_OPENS = re.compile(
    rf"[\s\"'(\[#]*(?:(?P<name>{MENTION})|(?P<id>[A-Z])|(?P<tie>(?!)))[)\]\"']?(?:\s?[.,;:!]\s"
    rf"|\s?[—–-]{{1,2}}\s|\s(?:because|since)\s)"
)
_PAIR_OF_SCORES = re.compile(
    r"\s*(?:scores?:?\s)?([0-9]{1,3}(?:\.[0-9]{1,3})?)\s{0,3}[,\s/"
    r"|]\s{0,3}([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*",
    re.I,
)
_NEGATIVE = re.compile(
    r"\b(?:not|no|never|neither|nor|claim\w*|assert\w*|insists?|says|fail\w*|lack\w*|incorrect\w*|wrong\w*|worse|inferior"
    r"|weak\w*|bad\w*|poor\w*|incomplete|irrelevant|miss(?:es|ing|ed)"
    r"|unhelpful|inaccurate\w*|however|but|although|though|reject\w*|avoid\w*|error\w*"
    r"|mistake\w*|(?:could|might|should)"
    r" (?:be|have)|needs?|improve\w*|if|whether|unless|both|other|tie)\b|n't\b|不|没|错|差",
    re.IGNORECASE,
)
_SENTENCE_OF_MENTION = re.compile(rf"[^.!?。\n]{{0,400}}{MENTION}[^.!?。\n]{{0,400}}[.!?。]?")


def read_view_for_choice(
    view: str, choices: Choices, *, cut: bool, ended: bool
) -> Reading[str] | None:
    """The choice in `view`; None where it holds nothing that reads like one. `ended`: the text does
    not break off in mid-sentence."""
    text = plain(view)
    marked_up = choices.marked_up(text)
    reading = decide([*_exact(view, choices, cut=cut), *_marked(text, choices)], text)
    if reading is not None:
        return reading
    statements = stated(marked_up, choices)
    lines = _of_lines(text, marked_up, choices, cut=cut)
    reading = decide([*_labelled(marked_up, choices, cut=cut), *lines], marked_up)
    if reading is not None:
        return _agreed(
            reading, decide([each for each in statements if each.rank >= PLAIN], marked_up)
        )
    reading = decide(statements, marked_up)
    if reading is not None:
        ended = ended or _ends_with(statements, marked_up, words=_CLOSING_WORDS)
    else:
        mentions = _lone_mentions(marked_up, choices)
        casual = ended and not text.lstrip()[:1].isupper()
        stops = marked_up.rstrip(" \n)\"'")[-1:] in (".", "!", "。")
        ended = casual or stops or _ends_with(mentions, marked_up, words=0)
        reading = decide(mentions, marked_up)
    if reading is None or (ended and not cut):
        return reading
    return Reading(None, reason="cut off")


def _ends_with(candidates: list[Candidate[str]], text: str, *, words: int) -> bool:
    """Whether the last candidate and at most so many `words` end the text."""
    rest = text[max((each.end for each in candidates), default=0) :].strip(" \n\"')]")
    return (
        len(rest.split()) <= words
        and not re.search(r"[.!?,;(\n]", rest)
        and not trails_off(f" {rest}")
    )


_CLOSING_WORDS = 3


def _agreed(reading: Reading[str], statement: Reading[str] | None) -> Reading[str]:
    """A bare line may be a title, so what the judge states must not be another verdict."""
    if reading.form not in ("first line", "last line") or statement is None:
        return reading
    differs = statement.verdict is not None and statement.verdict != reading.verdict
    return Reading(None, reason="contradiction") if differs else reading


def read_json_for_choice(view: str, choices: Choices) -> Reading[str] | None:
    """The choice in a JSON field, such as "winner", of `view`, in which quotation marks are
    whole."""
    contents = fields_of(view, _FIELD) if "{" in view else []
    values = [
        _value(plain(str(content)), choices)
        for content in contents
        if isinstance(content, str | int)
    ]
    return decide(
        [Candidate(value or None, 0, 0, "marked") for value in values if value is not None], view
    )


# --- marked


def _exact(view: str, choices: Choices, *, cut: bool) -> Iterator[Candidate[str]]:
    """The whole text is a choice; of a text that was cut, one that no longer choice begins like."""
    content = view.strip()
    index = choices.exactly(content)
    longer = cut and any(name != content and name.startswith(content) for name in choices.names)
    if index is not None and not longer:
        yield Candidate(choices.names[index], 0, len(view), "marked")


def _marked(text: str, choices: Choices) -> Iterator[Candidate[str]]:
    for match in _BRACKETS.finditer(text):
        follows = text[match.end() : match.end() + 4]
        if not re.match(r"\s(?:if|or|when)\b", follows):
            yield from _content(match[1] or match[2], match, choices)
    for match in _TAGGED.finditer(text):
        if "[[" not in match[2]:
            yield from _content(match[2], match, choices)


def _content(content: str, match: re.Match[str], choices: Choices) -> Iterator[Candidate[str]]:
    """The choice that the content of a mark is, or states."""
    verdict = _value(content, choices)
    if verdict is not None:
        yield Candidate(verdict or None, match.start(), match.end(), "marked", _own_line(match))


def _value(content: str, choices: Choices) -> str | None:
    """The choice; "" where a tie counts as none; None where it is none."""
    index = choices.exactly(content.strip())
    if index is not None:
        return choices.names[index]
    marked_up = choices.marked_up(content)
    compared = _COMPARED.search(marked_up) or _COMPARED.search(
        re.sub(r"\b[A-Z0-9]\b", lambda m: _character(m[0], choices), content)
    )
    if compared is not None:
        if "=" in compared[2]:
            return choices.of_undecided("tie") or ""
        winner = compared[1] if compared[2][0] in ">≫" else compared[3]
        return choices.names[choices.index_of(winner)]
    bare = _BARE.fullmatch(marked_up)
    if bare is not None:
        return _named(bare, choices)
    reading = decide(stated(marked_up, choices), marked_up)
    if reading is None or reading.reason == "contradiction":
        return None
    return reading.verdict or ""


def _character(identifier: str, choices: Choices) -> str:
    index = choices.of_identifier(identifier)
    return identifier if index is None else chr(0xE000 + index)


def _own_line(match: re.Match[str]) -> int:
    """1 where nothing else stands on the lines of `match`, otherwise 0."""
    text = match.string
    before = text[max(0, match.start() - 40) : match.start()].rsplit("\n", 1)[-1]
    after = text[match.end() : match.end() + 8].split("\n", 1)[0]
    return int(not before.strip(" #>-:\"'") and not after.strip(" .!\"'"))


# --- labels and lines


def _labelled(text: str, choices: Choices, *, cut: bool) -> Iterator[Candidate[str]]:
    for match in _LABELLED.finditer(text):
        lead = text[max(0, match.start() - 80) : match.start()]
        if _CONDITION.search(lead) or (cut and not text[match.end() :].strip()):
            continue
        verdict = _named(match, choices)
        if verdict is not None:
            yield Candidate(verdict or None, match.start(), match.end(), "label", _own_line(match))


def _named(match: re.Match[str], choices: Choices) -> str | None:
    """The choice that a match names; "" where it names none of them as a tie counts as none."""
    if match["name"]:
        return choices.names[choices.index_of(match["name"])]
    if match["tie"]:
        word = match["tie"].lower()
        kind = (
            "both"
            if word.startswith(("both", "equal"))
            else "neither"
            if word == "neither"
            else "tie"
        )
        return choices.of_undecided(kind) or ""
    identifier = match["id"]
    if identifier.islower():
        return None
    index = choices.of_identifier(identifier)
    return None if index is None else choices.names[index]


def _of_lines(
    text: str, marked_up: str, choices: Choices, *, cut: bool
) -> Iterator[Candidate[str]]:
    """A first or last line that is nothing but a verdict, or a text that begins with "B. Because
    ..."."""
    lines = [
        line
        for line in zip(text.split("\n"), marked_up.split("\n"), strict=True)
        if line[0].strip()
    ]
    if not lines or (cut and len(lines) == 1):
        return
    first = _BARE.fullmatch(lines[0][1]) or _OPENS.match(lines[0][1])
    if first is not None and not _is_title(lines[0][0], lines[1:], first, choices):
        yield from _line_verdict(first, 0, "first line", choices)
    scores = _PAIR_OF_SCORES.fullmatch(lines[0][0])
    if scores is not None and len(choices.sides) == 2:
        yield _of_scores(float(scores[1]), float(scores[2]), choices)
    last = _BARE.fullmatch(lines[-1][1])
    if (
        last is not None
        and len(lines) > 1
        and not cut
        and not _is_title(lines[-1][0], lines[:-1], last, choices)
    ):
        yield from _line_verdict(last, len(marked_up), "last line", choices)


def _line_verdict(
    match: re.Match[str], place: int, form: Form, choices: Choices
) -> Iterator[Candidate[str]]:
    verdict = _named(match, choices)
    if verdict is not None:
        yield Candidate(verdict or None, place, place, form, 1)


def _of_scores(first: float, second: float, choices: Choices) -> Candidate[str]:
    """A first line of two scores, one for each side in the order shown."""
    winner = (
        choices.of_undecided("tie")
        if first == second
        else choices.names[choices.sides[int(first < second)]]
    )
    return Candidate(winner, 0, 0, "first line", 1)


def _is_title(
    line: str, others: list[tuple[str, str]], match: re.Match[str], choices: Choices
) -> bool:
    """Whether a line with a choice is a title, or an entry of a list: another line begins with
    another choice.

    Under a line of one letter or number only short lines and entries can be its counterparts, not
    sentences.
    """
    verdict = _named(match, choices)
    short = len(line.strip(" \"'()[].,:#!")) <= _SHORT_NAME and match.end() == len(match.string)
    for other, marked_up in others:
        begins = _BEGINS.match(marked_up)
        named = None if begins is None else _named(begins, choices)
        if begins is None or named is None or named == verdict:
            continue
        titled = len(other.split()) <= _TITLE_WORDS and other.rstrip()[-1:] not in ".!?。"
        if not short or titled or re.match(r"\s*\(?\w[).:]\s", other):
            return True
    return False


_SHORT_NAME = 2
_TITLE_WORDS = 4
_BEGINS = re.compile(
    rf"[\s\"'(\[#>•\-]*(?:[0-9]{{1,2}}[.)]\s)?(?:(?P<name>{MENTION})|(?P<id>[A-Z]"
    rf"|[0-9]{{1,2}})(?=[.):]|\s*$)|(?P<tie>(?!)))"
)


# --- mentions


def _lone_mentions(text: str, choices: Choices) -> list[Candidate[str]]:
    """The mentions of the only choice that is mentioned, unless something speaks against it."""
    mentions = list(re.finditer(rf"{MENTION}(?!\s?[?:])", text))
    if len({match[0] for match in mentions}) != 1:
        return []
    sentences = [match[0] for match in _SENTENCE_OF_MENTION.finditer(text)]
    if any(_NEGATIVE.search(sentence) for sentence in sentences):
        return []
    name = choices.names[choices.index_of(mentions[0][0])]
    return [Candidate(name, match.start(), match.end(), "lone mention") for match in mentions]
