"""Mentions of a judge's choices in its output, in whatever form: "A", "Output (a)", "Assistant A",
"the first response".

`Choices.marked_up` replaces each mention by one private character, so that patterns over the text
do not depend on the forms.
"""

# ruff: noqa: RUF001
# Judges write the punctuation of many languages.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Literal

Undecided = Literal["tie", "both", "neither"]

_FIRST = 0xE000
_PRIVATE = re.compile("[\ue000-\uf8ff]")
MENTION = "[\ue000-\uf0ff]"
"""Pattern of one mention in a marked-up text."""

_TIES = ("tie", "tied", "draw", "equal", "same", "平局", "平手")
_NOUNS = (
    r"(?:AI[ -])?(?:outputs?|responses?|assistants?|answers?|models?|candidates?|options?"
    r"|choices?|repl(?:y|ies)|solutions?|completions?"
    r"|summar(?:y|ies)|versions?|essays?|stor(?:y|ies)|poems?|translations?|systems?|chatbots?"
    r"|bots?|agents?|submissions?|generations?"
    r"|explanations?|passages?|texts?|sides?|critiques?|arguments?|conversations?|dialogues?"
    r"|trajector(?:y|ies)|programs?)"
)
_CHINESE_NOUNS = r"(?:回答|回复|助手|答案|模型|选项|输出|方案|响应|候选)"
_OPEN = r"[(\[{\"'“‘]"
_CLOSE = r"[)\]}\"'”’]"
_ORDINALS = {
    "first": "1",
    "1st": "1",
    "second": "2",
    "2nd": "2",
    "third": "3",
    "3rd": "3",
    "fourth": "4",
    "4th": "4",
}
_NOT_A_CHOICE = re.compile(
    r"\b(?:vitamin|plan|type|grade|class|section|part|hepatitis|group|team|point|step|series"
    r"|figure|table|appendix|category|schedule|level"
    r"|schema|notation|variable|set|matrix|event|node|city|town|person|train|box|language"
    r"|programming in|row|column|phase|stage|string|key)"
    r"s?\s$",
    re.IGNORECASE,
)
_VERBS = (
    r"(?:is|isn['’]t|was|wasn['’]t|has|had|does|doesn['’]t|did|wins?|won|scores|and|or|nor|over|vs"
    r"|versus|beats?|outperforms?|edges|surpasses"
    r"|provides?|gives?|offers?|seems|appears|would|should|can|could|will|may|might|also"
    r"|clearly|definitely|still|because|since|but|fails"
    r"|lacks|includes|addresses|follows|answers|contains|takes|comes|deserves|gets|remains"
    r"|feels|looks|stands|does|than|it|as|by)"
)
_ARTICLE = re.compile(rf"\s+(?!(?:\w{{2,20}}ly\s+)?{_VERBS}\b)[a-z]")
_STARTS = re.compile(r"(?:^|[.!?:;\n•|>\-–—。：])[\s\"'“‘(\[*#]*$")
_LATEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit|mathit)\{([^{}\n]{1,40})\}")
_TAGS_OF_STYLE = re.compile(r"</?(?:b|strong|i|em|u|br|p|span)\s?/?>", re.IGNORECASE)
_IDENTIFIER = re.compile(
    rf"(?:{_NOUNS}|{_CHINESE_NOUNS})?\s*[(\[]?([A-Za-z]|[0-9]{{1,2}})[)\]]?", re.IGNORECASE
)


def plain(text: str) -> str:
    """`text` without emphasis and in one width, so that equal looks are equal characters. Lengths
    may change."""
    text = unicodedata.normalize("NFKC", _PRIVATE.sub(" ", text))
    text = _TAGS_OF_STYLE.sub("", _LATEX.sub(r"\1", text))
    return text.replace("*", "").replace("`", "").replace("__", "").replace("\u2019", "'")


def swapped_ids(ids: Mapping[str, int]) -> dict[str, int]:
    """The identifiers with numbers for letters, or letters for numbers, where they count from A or
    1; {} for others."""
    letters = list(map(chr, range(ord("A"), ord("A") + len(ids))))
    numbers = list(map(str, range(1, len(ids) + 1)))
    if len(ids) < 2:
        return {}
    if list(ids) == letters:
        return dict(zip(numbers, ids.values(), strict=True))
    if list(ids) == numbers:
        return dict(zip(letters, ids.values(), strict=True))
    return {}


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
        self._exact: dict[str, int] = {}
        self._ids: dict[str, int] = {}
        self._words: dict[str, int] = {}
        self.tie: int | None = None
        sides: list[int] = []
        for index, choice in enumerate(self.names):
            self._exact.setdefault(choice, index)
            name = plain(choice).strip()
            identifier = _IDENTIFIER.fullmatch(name)
            if identifier is not None:
                self._ids.setdefault(identifier[1].upper(), index)
            elif name.casefold() not in ("both", "neither", *_TIES):
                self._words.setdefault(name.casefold(), index)
            word = choice.strip().casefold()
            if word in _TIES and self.tie is None:
                self.tie = index
            if word not in (*_TIES, "both", "neither", "none"):
                sides.append(index)
        self.sides = tuple(sides)
        """The choices that are no tie."""
        self._swapped = swapped_ids(self._ids)
        self._mentions = self._pattern()

    def _pattern(self) -> re.Pattern[str]:
        words: list[str] = []
        for word in sorted(self._words, key=len, reverse=True):
            # In any case, with no letter or digit beside it unless its script has no spaces.
            before = r"(?<![A-Za-z0-9_])" if word[:1].isascii() and word[:1].isalnum() else ""
            after = r"(?![A-Za-z0-9_])" if word[-1:].isascii() and word[-1:].isalnum() else ""
            words.append(f"{before}(?i:{re.escape(word)}){after}")
        in_brackets = rf"{_OPEN}[ \t]?(?P<in_brackets>[A-Za-z]|[0-9]{{1,2}})[ \t]?{_CLOSE}"
        after_noun = r"#?(?P<after_noun>[A-Z]|[0-9]{1,2})(?![A-Za-z0-9_+]|[.,][0-9])"
        ids = f"(?:{in_brackets}|{after_noun})"
        forms: list[str] = []
        if words:
            forms.append(f"(?P<word>{'|'.join(words)})")
        if self._ids:
            forms += [
                rf"(?:(?<!\w)(?i:{_NOUNS})[ \t_#]{{0,3}}|{_CHINESE_NOUNS}[ \t]?){ids}",
                rf"(?<!\w)(?i:(?:the[ \t])?(?P<ordinal>first|second|third|fourth|1st|2nd|3rd"
                rf"|4th)[ \t](?:{_NOUNS}|one))(?!\w)",
                rf"第(?P<chinese>[一二三四])(?:个)?{_CHINESE_NOUNS}",
                r"\((?P<lone>[A-Za-z])\)",
                r"(?<![A-Za-z0-9_'.\-/+&$\\])(?P<bare>[A-HJ-Z])"
                r"(?![A-Za-z0-9_+#&/\\=^{]|-\w|\.\w|'(?!s\b))",
            ]
        # Without a form nothing matches.
        return re.compile("|".join(forms) or r"(?!)")

    def marked_up(self, text: str) -> str:
        """`plain(text)` with each mention replaced by the private character of its choice."""

        def character(match: re.Match[str]) -> str:
            index = self._mentioned(match)
            return match[0] if index is None else chr(_FIRST + index)

        return self._mentions.sub(character, text)

    def character(self, match: re.Match[str]) -> str:
        """The private character of a matched identifier; another match unchanged."""
        index = self.of_identifier(match[0])
        return match[0] if index is None else chr(_FIRST + index)

    def _mentioned(self, match: re.Match[str]) -> int | None:
        parts = match.groupdict()
        word = parts.get("word")
        if word is not None:
            return self._words[word.casefold()]
        identifier = parts["in_brackets"] or parts["after_noun"]
        if identifier is not None:
            return self.of_identifier(identifier)
        if parts["ordinal"] is not None:
            return self.of_identifier(_ORDINALS[parts["ordinal"].lower()])
        if parts["chinese"] is not None:
            return self.of_identifier(str("一二三四".index(parts["chinese"]) + 1))
        if parts["lone"] is not None:
            return self._ids.get(parts["lone"].upper())
        lead = match.string[max(0, match.start() - 40) : match.start()]
        if _NOT_A_CHOICE.search(lead):
            # A grade, a vitamin.
            return None
        starts = parts["bare"] == "A" and _STARTS.search(lead) is not None
        if starts and _ARTICLE.match(match.string, match.end()):
            # An article, as in "A better answer".
            return None
        return self._ids.get(parts["bare"])

    def of_identifier(self, identifier: str) -> int | None:
        """The choice of "A", "a" or "1"; also of 1 for A and of A for 1."""
        key = identifier.upper()
        return self._ids.get(key, self._swapped.get(key))

    def index_of(self, character: str) -> int:
        """The choice of a private character."""
        return ord(character) - _FIRST

    def exactly(self, content: str) -> int | None:
        """The choice that is spelt `content`."""
        return self._exact.get(content)

    def of_undecided(self, kind: Undecided) -> str | None:
        """The choice for "tie", "both" or "neither"; None where it counts as no verdict."""
        for name in self.names:
            if name.strip().casefold() == kind:
                return name
        if self.tie is None or (kind != "tie" and self._no_preference == "none"):
            return None
        return self.names[self.tie]
