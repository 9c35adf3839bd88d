"""Mentions of a judge's choices in its output, in whatever form: "A", "Output (a)", "Assistant A",
"the first response". Each becomes one private character, so that patterns over the text do not
depend on the forms."""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal

from rmrl.rewards.judging.reading import Value

Undecided = Literal["tie", "both", "neither"]

FIRST = 0xF0000
MOST = 0xFFFD
"""Number of private characters from `FIRST`."""
MENTION = "[\U000f0000-\U0010fffd]"
"""Pattern of one mention in a marked text."""
PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010fffd]")

_TIES = ("tie", "tied", "draw", "equal", "same", "平局", "平手")
_NOUNS = (
    r"(?:AI[ -])?(?:outputs?|responses?|assistants?|answers?|models?|candidates?|options?|choices?"
    r"|repl(?:y|ies)|solutions?|completions?|summar(?:y|ies)|versions?|essays?|stor(?:y|ies)|poems?"
    r"|translations?|systems?|(?:chat)?bots?|agents?|submissions?|generations?|explanations?"
    r"|passages?|texts?|sides?|critiques?|arguments?|conversations?|dialogues?|trajector(?:y|ies)"
    r"|programs?)"
)
_CHINESE_NOUNS = r"(?:回答|回复|助手|答案|模型|选项|输出|方案|响应|候选)"
_ORDINALS = ("first", "second", "third", "fourth"), ("1st", "2nd", "3rd", "4th"), tuple("一二三四")
_NOT_A_CHOICE = re.compile(
    r"\b(?:vitamin|plan|type|grade|class|section|part|hepatitis|group|team|point|step|series|figure"
    r"|table|appendix|category|schedule|level|schema|notation|variable|set|matrix|event|node|city"
    r"|town|person|train|box|language|programming in|row|column|phase|stage|string|key)s?\s$",
    re.IGNORECASE,
)
_VERBS = (
    r"(?:is|isn['’]t|wasn?['’]?t?|has|had|does|doesn['’]t|did|wins?|won|scores|and|or|nor|over|vs|versus"
    r"|beats?|outperforms?|edges|surpasses|provides?|gives?|offers?|seems|appears|would|should|can"
    r"|could|will|may|might|also|clearly|definitely|still|because|since|but|fails|lacks|includes"
    r"|addresses|follows|answers|contains|takes|comes|deserves|gets|remains|feels|looks|stands|than"
    r"|it|as|by)"
)
_ARTICLE = re.compile(rf"\s+(?!(?:\w{{2,20}}ly\s+)?{_VERBS}\b)[a-z]")
_STARTS = re.compile(r"(?:^|[.!?:;\n•|>\-–—。：])[\s\"'“‘(\[*#]*$")
_LATEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit|mathit)\{([^{}\n]{1,40})\}")
_DECORATION = re.compile(r"</?(?:b|strong|i|em|u|br|p|span)\s?/?>|[*`]|__", re.IGNORECASE)
IDENTIFIER = re.compile(
    rf"(?:{_NOUNS}|{_CHINESE_NOUNS})?[\s_-]*[(\[]?(?P<id>[A-Z]|[0-9]{{1,2}})[)\]]?", re.IGNORECASE
)
"""A choice that is a letter or a number: "b", "response_b"."""
SIDE_SCORE = re.compile(
    rf"(?=.*(?:score|rating|grade|points))(?:(?:overall|final|total|scores?|ratings?|grades?|points"
    rf"|of|for|{_NOUNS})[\s_-]?)*(?P<id>[A-Z]|[0-9]{{1,2}})"
    rf"(?:[\s_-](?:overall|final|total|score|rating|grade|points))*",
    re.IGNORECASE,
)
"""A field that holds one side's score: "score_a", "scores Response A"."""


@dataclass(frozen=True, slots=True)
class Marked(Generic[Value]):
    """A text in which each mention of a value is a private character."""

    text: str
    view: str
    """The text as it was."""
    values: Sequence[Value]
    several: bool = False
    """More than one number may be a score."""

    def value(self, mention: str) -> Value:
        """The value of a mention, which begins with its character."""
        return self.values[ord(mention[0]) - FIRST]


def plain(text: str, *, private: bool = False) -> str:
    """`text` without emphasis and in one width, so that equal looks are equal characters. Lengths
    may change. `private`: private characters stay."""
    if not private:
        text = PRIVATE.sub(" ", text)
    text = unicodedata.normalize("NFKC", text)
    text = _DECORATION.sub("", _LATEX.sub(r"\1", text)).replace("\u2019", "'")
    return re.sub(r"[ \t]{2,}", " ", text)


def _character(match: re.Match[str], index: int | None) -> str:
    if index is None:
        return match[0]
    return chr(FIRST + index)


def swapped_ids(ids: Mapping[str, int]) -> dict[str, int]:
    """The identifiers with numbers for letters, or letters for numbers, where they count from A or
    1; {} for others."""
    letters = [chr(ord("A") + k) for k in range(len(ids))]
    numbers = [str(k + 1) for k in range(len(ids))]
    if len(ids) < 2 or list(ids) not in (letters, numbers):
        return {}
    (others,) = [each for each in (letters, numbers) if each != list(ids)]
    return dict(zip(others, ids.values(), strict=True))


class Choices:
    """The choices of one judge, in their order.

    Letters and numbers stand for each other where the choices are A, B, ... or 1, 2, ...: "Response
    1" is A. A choice such as "tie" or "draw" is the verdict of an undecided judge; "both" and
    "neither" may be choices of their own.
    """

    def __init__(
        self, choices: Sequence[str], *, no_preference: Literal["tie", "none"] = "tie"
    ) -> None:
        self.names = tuple(choices)
        self._no_preference = no_preference
        self._ids: dict[str, int] = {}
        self._words: dict[str, int] = {}
        words = [choice.strip().casefold() for choice in choices]
        self.tie = next((self.names[k] for k, word in enumerate(words) if word in _TIES), None)
        undecided = (*_TIES, "both", "neither")
        self.sides = tuple(
            self.names[k] for k, word in enumerate(words) if word not in (*undecided, "none")
        )
        """The choices that are no tie."""
        for index, choice in enumerate(self.names):
            name = plain(choice).strip()
            identifier = IDENTIFIER.fullmatch(name)
            if identifier is not None:
                self._ids.setdefault(identifier[1].upper(), index)
            elif name.casefold() not in undecided:
                self._words.setdefault(name.casefold(), index)
        self._ids |= swapped_ids(self._ids)
        self.third = ""
        """How judges write the tie behind two choices: [[C]] or [[3]], "" for other choices."""
        if self.sides in (("A", "B"), ("1", "2")) and self.names[2:] == (self.tie,):
            self.third = {"A": "[[C]]", "1": "[[3]]"}[self.sides[0]]
        self._mentions = self._pattern()

    def _pattern(self) -> re.Pattern[str]:
        words: list[str] = []
        for word in sorted(self._words, key=len, reverse=True):
            # In any case, with no letter or digit beside it unless its script has no spaces.
            before = r"(?<![A-Za-z0-9_])" if re.match("[A-Za-z0-9]", word) else ""
            after = r"(?![A-Za-z0-9_])" if re.search("[A-Za-z0-9]$", word) else ""
            words.append(f"{before}(?i:{re.escape(word)}){after}")
        forms = [f"(?P<word>{'|'.join(words)})"] if words else []
        identifier = (
            r"(?:[(\[{\"'“‘][ \t]?(?P<in_brackets>[A-Za-z]|[0-9]{1,2})[ \t]?[)\]}\"'”’]"
            r"|#?(?P<after_noun>[A-Z]|[0-9]{1,2})(?![A-Za-z0-9_+]|[.,][0-9]))"
        )
        ordinals = "|".join(_ORDINALS[0] + _ORDINALS[1])
        if self._ids:
            forms += [
                rf"(?:(?<!\w)(?i:{_NOUNS})[ \t_#]{{0,3}}|{_CHINESE_NOUNS}[ \t]?){identifier}",
                rf"(?<!\w)(?i:(?:the[ \t])?(?P<ordinal>{ordinals})[ \t](?:{_NOUNS}|one))(?!\w)",
                rf"第(?P<chinese>[一二三四])(?:个)?{_CHINESE_NOUNS}",
                r"\((?P<lone>[A-Za-z])\)",
                r"(?<![A-Za-z0-9_'.\-/+&$\\])(?P<bare>[A-HJ-Z])"
                r"(?![A-Za-z0-9_+#&/\\=^{]|-\w|\.\w|'(?!s\b))",
            ]
        # Without a form nothing matches.
        return re.compile("|".join(forms) or r"(?!)")

    def marked(self, view: str) -> Marked[str]:
        """`view` in its `plain` form with each mention replaced by the private character of its
        choice."""

        def character(match: re.Match[str]) -> str:
            return _character(match, self._mentioned(match))

        return Marked(self._mentions.sub(character, plain(view)), view, self.names)

    def with_identifiers(self, marked: Marked[str]) -> Marked[str]:
        """The text with letters and digits alone as mentions, too."""

        def character(match: re.Match[str]) -> str:
            return _character(match, self._ids.get(match[0]))

        return replace(marked, text=re.sub(r"\b[A-Z0-9]\b", character, marked.text))

    def _mentioned(self, match: re.Match[str]) -> int | None:
        kind = match.lastgroup or ""
        content = match[kind]
        if kind == "word":
            return self._words[content.casefold()]
        if kind in ("ordinal", "chinese"):
            names = next(each for each in _ORDINALS if content.lower() in each)
            return self._ids.get(str(names.index(content.lower()) + 1))
        if kind == "bare":
            lead = match.string[max(0, match.start() - 40) : match.start()]
            starts = content == "A" and _STARTS.search(lead)
            article = starts and _ARTICLE.match(match.string, match.end())
            if article or _NOT_A_CHOICE.search(lead):
                # As in "A better answer", "grade A".
                return None
        return self._ids.get(content.upper())

    def of_identifier(self, identifier: str) -> str | None:
        """The choice that is spelt so, or that "A" or "1" names, also 1 for A and A for 1."""
        if identifier in self.names:
            return identifier
        return dict(enumerate(self.names)).get(self._ids.get(identifier, -1))

    def of_match(self, match: re.Match[str] | None) -> str | None:
        """The choice that a match with IDENTIFIER or SIDE_SCORE names, in any case."""
        return match and self.of_identifier(match["id"].upper())

    def of_undecided(self, kind: Undecided) -> str | None:
        """The choice for "tie", "both" or "neither"; None where it counts as no verdict."""
        own = next((name for name in self.names if name.strip().casefold() == kind), None)
        if own is not None or (kind != "tie" and self._no_preference == "none"):
            return own
        return self.tie
