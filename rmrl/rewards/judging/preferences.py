"""Statements of preference in a judge's prose: "Output (b) is better", "I prefer A", "both are
equally good".

The patterns run over texts in which each mention of a choice is one private character (see
`choices`), sentence by sentence; all repetitions are bounded, so time is linear.
"""

# Judges write the punctuation of many languages.

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rmrl.rewards.judging.choices import MENTION, Choices, Undecided
from rmrl.rewards.judging.reading import Candidate

QUALIFIED = 2
PLAIN = 3
CONCLUDING = 4
_SOFT = 1

_X = f"({MENTION})"
_OWNER = r"(?:'s(?:\s\w{2,20}){0,3}|\s(?:response|answer|output|reply))?"
_ASIDE = r"(?:\s?[,(][^,()\ue000-\uf0ff]{1,100}[,)])?"
_ADVERBS = (
    r"(?:,?\s(?:\w{2,20}ly|much|far|still|indeed|also|a bit|a little|a lot|even|just|thus"
    r"|therefore|hence|overall|somewhat|so|by far"
    r"|in fact|in my (?:opinion|view)|in general|in this case|on the whole|again|as a result"
    r"|for me|of the two|that|which|the|a|an|one|more"
    r"|far and away|slight|clear|certainly)\b,?){0,6}"
)
_BE = (
    r"(?:is|was|are|would be|'d be|will be|'s|seems(?:\sto\sbe)?|appears(?:\sto\sbe)?|feels"
    r"|looks|remains|stands\sout\sas|emerges\sas"
    r"|comes\sout\sas|comes\sacross\sas|ranks\sas|can\sbe\sconsidered|should\sbe|must\sbe"
    r"|has\sto\sbe|proves(?:\sto\sbe)?)"
)
_GOOD = (
    r"(?:better|best|superior|preferable|preferred|preferr?able|stronger|strongest|winner"
    r"|winning|favou?red|favou?rite"
    r"|(?:correct|right)\s(?:choice|pick)|my\s(?:choice|pick|preference|favou?rite)"
    r"|chosen\sone|chosen|top\schoice|one\sI\s(?:prefer|choose))"
)
_BAD = (
    r"(?:worse|worst|inferior|weaker|weakest|less\s(?:preferable|preferred|good)"
    r"|not\s(?:quite\s|nearly\s)?as\sgood|loser)"
)
_WINS = (
    r"(?:wins?|won|outperforms?|outperformed|beats?|edges\sout|surpasses|outshines|trumps"
    r"|takes\sthe\s(?:win|lead|edge|cake)"
    r"|comes\sout\s(?:ahead|on\stop)|gets\smy\svote|deserves\sto\swin|has\s(?:the|a"
    r"|an)\s(?:\w{2,12}\s)?(?:edge|advantage)"
    r"|does\s(?:a|the)\s(?:\w{2,14}\s){0,2}(?:better|best)\sjob)"
)
_CHOOSE = (
    r"(?:prefer|choose|chose|pick|picked|select|selected|favou?r|go\s(?:for|with)|went\swith"
    r"|opt\sfor|vote\sfor|lean\s(?:towards?|to)|side\swith"
    r"|recommend|declare|deem|rank|rate|consider|award\s(?:it\s|the\swin\s)?to|crown|judge)"
)
_JUDGE = (
    r"\b(?:I|we)(?:'d|'ll|'m|\swould|\swill|\sdo|\shave\sto|\smust|\sam|\scan|\sshould)?"
    r"(?:\s(?:\w{2,20}ly|still|also|inclined\sto|going\sto|tend\sto|to|rather|have|thus|hence"
    r"|therefore|like\sto|say\sI|just|ultimately)){0,4}"
)
_NOT = r"(?:\s(?:not|no|never|neither|hardly|by\sno\smeans|nowhere\snear)|n't)"

_IS_BETTER = re.compile(
    rf"{_X}{_OWNER}{_ASIDE}{_ADVERBS},?\s?{_BE}(?P<no>{_NOT})?{_ADVERBS}(?P<no2>{_NOT})?{_ADVERBS}\s{_GOOD}\b",
    re.I,
)
_IS_WORSE = re.compile(
    rf"{_X}{_OWNER}{_ASIDE}{_ADVERBS},?\s?{_BE}(?P<no>{_NOT}(?!\s(?:quite\s"
    rf"|nearly\s)?as))?{_ADVERBS}\s{_BAD}\b"
    rf"|{_X}{_OWNER}{_ASIDE}\s(?:is|was)n't\s(?:quite\s|nearly\s)?as\sgood\b",
    re.I,
)
_WINS_OVER = re.compile(
    rf"{_X}{_OWNER}{_ASIDE}{_ADVERBS}(?P<no>\s(?:does|did|do|would|can)(?:\snot|n't)"
    rf"|\snever)?{_ADVERBS}\s{_WINS}\b",
    re.I,
)
_CHOSEN = re.compile(
    rf"{_JUDGE}(?P<no>{_NOT})?(?:\s\w{{2,20}}ly)?\s{_CHOOSE}(?:\s(?:the|that|for)\b)?\s{_X}", re.I
)
_BETTER_IS = re.compile(
    rf"\b(?P<no>not\s(?:a\s|the\s)?)?(?:(?:better|best|superior|preferred|preferable|winning"
    rf"|stronger|strongest|favou?rite)"
    rf"(?:\s(?:\w{{2,16}}|of\sthe\s(?:two|three|four|responses|outputs|answers))){{0,3}}?"
    rf"|winner|preference|my\s(?:choice|pick|vote|verdict))"
    rf"{_ADVERBS}\s?(?:is|was|would\sbe|has\sto\sbe|must\sbe|will\sbe|comes\sfrom|belongs\sto"
    rf"|goes\sto|:)(?P<no2>{_NOT})?"
    rf"{_ADVERBS}\s?{_X}",
    re.I,
)
_GOES_TO = re.compile(
    rf"\b(?:(?:the|my)\s)?(?:edge|nod|win|point|victory|advantage|vote|award|preference"
    rf"|verdict)\s(?P<no>does\snot\s)?"
    rf"(?:goes?|would\sgo|has\sto\sgo|must\sgo|is\sgiven|went)\sto\s(?:the\s)?{_X}"
    rf"|\b(?:gives?|giving|gave|given|award(?:s|ed|ing)?)\s(?:a\s|an\s"
    rf"|the\s)?(?:\w{{2,12}}\s)?(?:edge|nod|win|point|victory|advantage)\sto"
    rf"\s(?:the\s)?{_X}|\b(?:rule|ruled|ruling|lean|leans|leaning|decide|decided|judge|judged"
    rf"|verdict|vote)\s(?:is\s)?in\sfavou?r\sof\s{_X}",
    re.I,
)
_OVER = re.compile(
    rf"{_X}{_OWNER}\s?(?:over|>{{1,3}}|is\spreferred\s(?:over|to)|≻)\s?(?:the\s)?{_X}", re.I
)
_OVERALL = re.compile(rf"\boverall,?\s{_X}(?=\s?(?:$|[.;!]))", re.I)
_UNDER = re.compile(rf"{_X}\s?<{{1,3}}\s?{_X}")
_CHINESE_BETTER = re.compile(
    rf"(?<!比)(?<!比\s){_X}(?:的?(?:回答|回复|质量|表现)|[^\ue000-\uf0ff。"
    r",;不没并]{0,12}?){0,2}(?P<no>不"
    rf"|没有|并非|并不)?(?:是|更为?|要|略|明显|显然|相对|整体|总体)*"
    rf"(?:更好|更优|更佳|更胜一筹|较好|较优|胜出|获胜|最好|最佳|好|优)(?=[一些多的]|\s|[。"
    rf",;!]|$)|(?:选择?|偏好|倾向于?|更喜欢|推荐"
    rf"|支持)\s?{_X}"
    rf"|(?:更好|更优|最好|最佳)的(?:回答|回复|答案|一个)?(?:是|为)\s?{_X}"
)
_CHINESE_THAN = re.compile(
    rf"{_X}(?P<no>不|没有|并不)?(?:要|明显|显然)?(?:优于|好于|胜过|强于)\s?{_X}"
    rf"|{_X}\s?比\s?{_X}[^\ue000-\uf0ff。,;不没]{{0,8}}?(?:更好|更优|更佳|好|优|强)"
)
_CHINESE_LESS = re.compile(rf"{_X}\s?(?:不如|劣于|差于|逊于)\s?{_X}")

_ELSEWHERE = re.compile(
    r"(?:\b(?:if|whether|unless|although|though|while|whilst|despite|suppose|supposing"
    r"|assuming|claims?|claiming|claimed|asserts?|asserting"
    r"|insists?|says|said|states|stated|stating|declares?|argues?|argued|pretends?|instructs?"
    r"|asks?|wants?|some (?:may|might|would|people)|one (?:may|might|could)"
    r"|it (?:may|might|could)|at first|initially|on the surface|not (?:think|believe|say|mean"
    r"|true|clear|necessarily|certain|sure|the case"
    r"|that|because|convinced)|cannot (?:say|conclude|claim)|hard to say|instead of|no reason"
    r"|fails? to|(?:wrong|incorrect|false|unfair|misleading|inaccurate|untrue|(?:a )?mistake)"
    r" (?:to (?:say|claim|call|think|conclude|state|judge|assume)|that))"
    r"|n't (?:think|believe|say|mean|see|make|necessarily))\b(?:[^,;:]|, (?:that|which)\b)*$"
    r"|(?:如果|若|虽然|尽管|是否|声称|并非|不认为)[^,;]*$",
    re.IGNORECASE,
)
_HYPOTHETICAL = re.compile(
    r"(?:\s(?:response|answer|output|option|choice|one))?\s?,?\s?(?:only\s)?(?:if|unless"
    r"|provided|assuming|had|were|described|suited\sto\sbe|known|off|by some)\b",
    re.I,
)
_QUALIFIER = re.compile(
    r"\s(?:(?:at|in|on|with\sregard|when|regarding|from|only)\b(?!\s(?:every|all|general"
    r"|this\scase|my\s|both|most|the\swhole|overall|balance"
    r"|following|answering|fulfilling|addressing|executing|meeting))|for\s(?:those|users"
    r"|people|beginners|someone|readers)|than\s(?!the\sother"
    r"|its|that|both|[\ue000-\uf0ff]|either|any)|(?!executed|needed)\w{3,14}ed\b|written\b"
    r"|(?!following|answering|executing|overall|anything)\w{3,14}ing\b)",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"\b(?:therefore|thus|hence|in conclusion|ultimately|all things considered|I conclude)\b"
    r"|^\W{0,4}(?:(?:and|so|but),? )?(?:overall|in summary|to conclude|to sum up|to summarize"
    r"|consequently|as such|accordingly|all in all|on balance"
    r"|in the end|for (?:these|this|that) reasons?|because of this|based on|given|considering"
    r"|taking|final(?:ly)?|so|as a result|taken together"
    r"|my (?:final )?(?:verdict|decision|choice))\b|总之|综上|因此|所以|最终|总体|综合",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^\n。;]*?(?:[.!?][\"')\]]{0,2}(?=\s)|[。;\n]|$)|[^\n。;]+")
_TOGETHER = re.compile(
    rf"(?:\b(?P<lead>both|neither|either|between)\s)?(?:the\s)?{_X},?\s?(?P<link>and|&|or|nor"
    rf"|vs|versus|/|与|和|跟)\s?(?:the\s)?{_X}",
    re.I,
)

_TIE = re.compile(
    r"\b(?<!not )(?<!n't )(?:(?:a|the) (?:virtual |dead |close |absolute )?(?:tie|draw|toss-up"
    r"|dead heat)(?!-|\s?break|\sto\b)|(?:are|is|it'?s|remain|as|call it) tied\b"
    r"|^\W*(?:tie|draw)\W*$|no (?:clear|real|obvious|definite)? ?(?:winner|preference)"
    r"|no (?:clear |real |significant |meaningful )?difference (?:in|between) (?:the "
    r"|their )?(?:quality|both|two|them))|平局|不相上下|难分高下|难分伯仲|一样好",
    re.IGNORECASE,
)
_EQUAL = re.compile(
    r"\b(?P<no>not |n't )?(?:equally (?:\w+ly )?(?:good|bad|poor|well|valid|helpful|correct"
    r"|incorrect|wrong|strong|weak|accurate|inaccurate"
    r"|acceptable|unacceptable|effective|satisfactory|useful|appropriate|suitable|preferable"
    r"|matched|relevant|informative|capable|unhelpful)"
    r"|(?:both|they|the two|(?:both |the |two ){0,2}(?:responses|outputs|answers"
    r"|assistants))(?: \w{2,12})? (?:are|is|were)(?P<no2> not|n't)? (?:\w+ly |of |about "
    r"|the )?"
    r"(?:equal|equivalent|identical|comparable|on par|same|(?:the "
    r"|similar )?(?:same )?quality)\b|equal(?:ly)? (?:in )?quality|on (?:a )?par\b)"
    r"|同样好|差不多|相当",
    re.IGNORECASE,
)
_BOTH = re.compile(
    r"\bboth\b(?: of (?:them|the \w+))?(?: \w+){0,2} (?:are|were|is|do"
    r"|did) (?P<no>not )?(?:\w+ly )?(?:good|great|fine|correct|right|accurate|acceptable"
    r"|excellent|wrong|bad|incorrect|poor|inaccurate|unacceptable|equal|well|well-written"
    r"|valid|helpful|unhelpful|irrelevant|incomplete|perfect)\b"
    r"|^\W*both\W*$|都(?:很|是)?(?:好|对|正确|不错|不好|错)",
    re.IGNORECASE,
)
_NEITHER = re.compile(
    r"\bneither\b(?! too\b)|\bnone of (?:the|them|these)\b|\b(?:both|the) (?:responses|outputs"
    r"|answers) (?:fail|are (?:equally )?bad)\b|都不",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    rf"[^\ue000-\uf0ff]{{0,80}}\b(?:but|however|though|although|yet|while"
    rf"|whereas)\b[^\ue000-\uf0ff]{{0,80}}{MENTION}",
    re.I,
)
"""A comparison follows: "both are equally good, but A is shorter"."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    start: int
    concludes: bool


def stated(text: str, choices: Choices) -> list[Candidate[str]]:
    """The statements of preference in a marked-up text: those that conclude rank highest, those "in
    terms of" something lowest.

    Left out are negations, questions, conditions, concessions ("while A is better at ...") and
    opinions that the judge attributes to others.
    """
    candidates: list[Candidate[str]] = []
    merged = _TOGETHER.sub(_merged, text)
    alone = re.search(MENTION, merged) is None
    for match in _SENTENCE.finditer(merged):
        if match[0].strip():
            concludes = _CONCLUDES.search(match[0]) is not None
            sentence = _Sentence(match[0], match.start(), concludes)
            candidates += _preferences(sentence, choices)
            candidates += _ties(sentence, choices, alone=alone)
    return candidates


def _merged(match: re.Match[str]) -> str:
    """One word for two choices that do or are the same. Lengths change little."""
    if match[2] == match[4]:
        return match[0]
    lead = (match["lead"] or "").lower()
    if lead == "neither" or match["link"].lower() == "nor":
        return "neither"
    if lead in ("either", "between") or match["link"].lower() in ("or", "vs", "versus", "/"):
        return "one"
    return "both"


def _preferences(sentence: _Sentence, choices: Choices) -> Iterator[Candidate[str]]:
    text = sentence.text
    if not re.search(MENTION, text) or text.rstrip(" \"')\n").endswith("?"):
        return
    for pattern, sign in _PATTERNS:
        for match in pattern.finditer(text):
            lead = text[max(0, match.start() - 200) : match.start()]
            tail = text[match.end() : match.end() + 60]
            if _is_denied(match) or _ELSEWHERE.search(lead):
                continue
            if _HYPOTHETICAL.match(tail) or tail.lstrip().startswith("?"):
                continue
            index = choices.index_of(_first_mention(match))
            preferred: int | None = index
            if sign < 0:
                others = [side for side in choices.sides if side != index]
                preferred = others[0] if len(others) == 1 else None
            if index not in choices.sides or preferred is None:
                continue
            start = sentence.start + match.start()
            end = sentence.start + match.end()
            rank = CONCLUDING if sentence.concludes else PLAIN
            if _QUALIFIER.match(tail):
                rank = QUALIFIED
            yield Candidate(choices.names[preferred], start, end, "stated", rank)


def _first_mention(match: re.Match[str]) -> str:
    """The first unnamed group that matched: mentions are the patterns' only unnamed groups."""
    named = set(match.re.groupindex.values())
    for number in range(1, match.re.groups + 1):
        if number not in named and match[number]:
            return match[number]
    raise AssertionError(f"no mention in {match[0]!r}")


_PATTERNS = (
    (_IS_BETTER, 1),
    (_IS_WORSE, -1),
    (_WINS_OVER, 1),
    (_CHOSEN, 1),
    (_BETTER_IS, 1),
    (_GOES_TO, 1),
    (_OVER, 1),
    (_OVERALL, 1),
    (_UNDER, -1),
    (_CHINESE_BETTER, 1),
    (_CHINESE_THAN, 1),
    (_CHINESE_LESS, -1),
)
"""(pattern, 1 where the first mention is preferred, -1 where the other one is)."""


def _is_denied(match: re.Match[str]) -> bool:
    parts = match.groupdict()
    return bool(parts.get("no") or parts.get("no2"))


def _ties(sentence: _Sentence, choices: Choices, *, alone: bool) -> Iterator[Candidate[str]]:
    """Statements that prefer neither.

    `alone`: the text has no statement on one choice by itself; otherwise "both are good" is only
    the beginning of a comparison.
    """
    kinds: tuple[tuple[re.Pattern[str], Undecided, int], ...] = (
        (_TIE, "tie", PLAIN),
        (_EQUAL, "both", QUALIFIED),
        (_BOTH, "both", _SOFT),
        (_NEITHER, "neither", _SOFT),
    )
    if sentence.text.rstrip(" \"')\n").endswith("?"):
        return
    for pattern, kind, rank in kinds:
        match = pattern.search(sentence.text)
        if match is None or _is_denied(match) or (pattern is _BOTH and not alone):
            continue
        if _ELSEWHERE.search(sentence.text[max(0, match.start() - 200) : match.start()]):
            continue
        if _GOES_ON.match(sentence.text, match.end()):
            continue
        if sentence.concludes and rank >= QUALIFIED:
            rank = CONCLUDING
        start = sentence.start + match.start()
        end = sentence.start + match.end()
        yield Candidate(choices.of_undecided(kind), start, end, "stated", rank)
        return
