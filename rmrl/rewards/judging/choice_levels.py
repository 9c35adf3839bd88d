"""Read a choice from one view of a judge's output, level by level; see `reader` for their order."""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import re
from collections.abc import Iterator

from rmrl.rewards.judging.choices import MENTION, Choices, Undecided, plain
from rmrl.rewards.judging.json_fields import fields_of
from rmrl.rewards.judging.preferences import PLAIN, stated
from rmrl.rewards.judging.reading import Candidate, Form, Reading, decide, trails_off
from rmrl.rewards.judging.side_by_side import compared

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
    r"|preferred(?: \w{2,12})?|overall|correction"
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
    rf"[\s\"'(\[#]*(?:(?P<name>{MENTION})|(?P<id>[A-Z])|(?P<tie>(?!)))[)\]\"']?"
    rf"(?:\s?[.,;:!]\s(?!\s?[0-9])"
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
    r" (?:be|have)|needs?|improve\w*|if|whether|unless|both|other|tie"
    r"|nicht|kein\w*|schlecht\w*|falsch\w*)\b|n't\b|不|没|错|差",
    re.IGNORECASE,
)
_SENTENCE_OF_MENTION = re.compile(rf"[^.!?。\n]{{0,400}}{MENTION}[^.!?。\n]{{0,400}}[.!?。]?")


def read_view_for_choice(
    view: str, choices: Choices, *, cut: bool, ended: bool, firm: bool = False
) -> Reading[str] | None:
    """The choice in `view`; None where nothing in it reads like one.

    `ended`: the text does not break off in mid-sentence. `firm`: a statement on one aspect does
    not count, nor does a lone mention.
    """
    text = plain(view)
    marked_up = choices.marked_up(text)
    reading = decide(list(_marked(view, text, choices, cut=cut)))
    if reading is not None:
        return reading
    statements = [*stated(marked_up, choices), *compared(marked_up, choices)]
    if firm:
        statements = [each for each in statements if each.rank >= PLAIN]
    lines = _of_lines(text, marked_up, choices, cut=cut)
    reading = decide([*_labelled(marked_up, choices, cut=cut), *lines])
    if reading is not None:
        if reading.form not in ("first line", "last line"):
            return reading
        # A bare line may be a title, so the judge's statements must not be another verdict.
        plain_statements = [each for each in statements if each.rank >= PLAIN]
        statement = decide(plain_statements)
        if statement is None or statement.verdict in (None, reading.verdict):
            return reading
        return Reading(None, reason="contradiction")
    reading = decide(statements)
    if reading is not None:
        ended = ended or _ends_with(statements, marked_up, words=_CLOSING_WORDS)
    elif not firm:
        mentions = _lone_mentions(marked_up, choices)
        casual = ended and not text.lstrip()[:1].isupper()
        stops = marked_up.rstrip(" \n)\"'")[-1:] in (".", "!", "。")
        ended = casual or stops or _ends_with(mentions, marked_up, words=0)
        reading = decide(mentions)
    if reading is None or (ended and not cut):
        return reading
    return Reading(None, reason="cut off")


def _ends_with(candidates: list[Candidate[str]], text: str, *, words: int) -> bool:
    """Whether the text ends at most so many `words` behind the last candidate."""
    end = max((each.end for each in candidates), default=0)
    rest = text[end:].strip(" \n\"')]")
    if len(rest.split()) > words or re.search(r"[.!?,;(\n]", rest):
        return False
    return not trails_off(f" {rest}")


_CLOSING_WORDS = 3


def read_json_for_choice(view: str, choices: Choices) -> Reading[str] | None:
    """The choice in a JSON field, such as "winner", of `view`, in which quotation marks are
    whole."""
    if "{" not in view:
        return None
    candidates: list[Candidate[str]] = []
    for content in fields_of(view, _FIELD):
        if isinstance(content, str | int):
            value = _value(plain(str(content)), choices)
            if value is not None:
                candidates.append(Candidate(value or None, 0, 0, "marked"))
    return decide(candidates)


# --- marked


def _marked(view: str, text: str, choices: Choices, *, cut: bool) -> Iterator[Candidate[str]]:
    """The choice that the whole of `view` is, and those in marks of `text`, its `plain` form.

    In a text that was cut the whole counts only if no longer choice begins like it.
    """
    content = view.strip()
    index = choices.exactly(content)
    longer = cut and any(name != content and name.startswith(content) for name in choices.names)
    if index is not None and not longer:
        yield Candidate(choices.names[index], 0, len(view), "marked")
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
    compared = _COMPARED.search(marked_up)
    if compared is None:
        identifiers = re.compile(r"\b[A-Z0-9]\b")
        compared = _COMPARED.search(identifiers.sub(choices.character, content))
    if compared is not None:
        if "=" in compared[2]:
            return choices.of_undecided("tie") or ""
        winner = compared[1] if compared[2][0] in ">≫" else compared[3]
        return choices.names[choices.index_of(winner)]
    bare = _BARE.fullmatch(marked_up)
    if bare is not None:
        return _named(bare, choices)
    reading = decide(stated(marked_up, choices))
    if reading is None or reading.reason == "contradiction":
        return None
    return reading.verdict or ""


def _own_line(match: re.Match[str]) -> int:
    """1 where the lines of `match` hold nothing else, otherwise 0."""
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
    """The choice that a match names; "" for a tie that counts as none of them."""
    if match["name"]:
        return choices.names[choices.index_of(match["name"])]
    if match["tie"]:
        word = match["tie"].lower()
        kind: Undecided = "tie"
        if word.startswith(("both", "equal")):
            kind = "both"
        elif word == "neither":
            kind = "neither"
        return choices.of_undecided(kind) or ""
    identifier = match["id"]
    if identifier.islower():
        return None
    index = choices.of_identifier(identifier)
    return None if index is None else choices.names[index]


def _of_lines(
    text: str, marked_up: str, choices: Choices, *, cut: bool
) -> Iterator[Candidate[str]]:
    """The choice of a first or last line that is nothing but a verdict, or of a text that begins
    with "B. Because ..."."""
    lines: list[tuple[str, str]] = [
        line
        for line in zip(text.split("\n"), marked_up.split("\n"), strict=True)
        if line[0].strip()
    ]
    if not lines or (cut and len(lines) == 1):
        return
    line, marked_line = lines[0]
    first = _BARE.fullmatch(marked_line) or _OPENS.match(marked_line)
    if first is not None and not _is_title(line, lines[1:], first, choices):
        yield from _line_verdict(first, 0, "first line", choices)
    scores = _PAIR_OF_SCORES.fullmatch(line)
    if scores is not None and len(choices.sides) == 2:
        # Two scores, one for each side in the displayed order.
        lead = float(scores[1]) - float(scores[2])
        winner = choices.of_undecided("tie")
        if lead != 0:
            winner = choices.names[choices.sides[0 if lead > 0 else 1]]
        yield Candidate(winner, 0, 0, "first line", 1)
    if cut or len(lines) == 1:
        return
    line, marked_line = lines[-1]
    last = _BARE.fullmatch(marked_line)
    if last is not None and not _is_title(line, lines[:-1], last, choices):
        yield from _line_verdict(last, len(marked_up), "last line", choices)


def _line_verdict(
    match: re.Match[str], place: int, form: Form, choices: Choices
) -> Iterator[Candidate[str]]:
    verdict = _named(match, choices)
    if verdict is not None:
        yield Candidate(verdict or None, place, place, form, 1)


def _is_title(
    line: str, others: list[tuple[str, str]], match: re.Match[str], choices: Choices
) -> bool:
    """Whether a line with a choice is a title or an entry of a list: another line begins with
    another choice.

    Under a line of one letter or number only short lines and entries can be its counterparts, not
    sentences.
    """
    verdict = _named(match, choices)
    short = len(line.strip(" \"'()[].,:#!")) <= _SHORT_NAME and match.end() == len(match.string)
    for other, marked_up in others:
        begins = _BEGINS.match(marked_up)
        if begins is None or _named(begins, choices) in (None, verdict):
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
    """The mentions of the only choice that is mentioned, unless a sentence speaks against it."""
    mentions = list(re.finditer(rf"{MENTION}(?!\s?[?:])", text))
    characters = set(map(re.Match.group, mentions))
    if len(characters) != 1:
        return []
    for sentence in _SENTENCE_OF_MENTION.finditer(text):
        if _NEGATIVE.search(sentence[0]):
            return []
    name = choices.names[choices.index_of(characters.pop())]
    candidates: list[Candidate[str]] = [
        Candidate(name, match.start(), match.end(), "lone mention") for match in mentions
    ]
    return candidates
