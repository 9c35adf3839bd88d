"""Verdicts by asking: a judge that has written its reasoning continues with the verdict, and the
engine says how likely each verdict is.

    the judge's input + its own text + "\\n\\nScore: " -> one token, p(each level)

A level with several tokens ("10" where a tokenizer splits digits) is a path in a tree. Each node
where paths part, or where one may end, is one request for one token, and all nodes are asked at
once: p(level) is the product along its path. Where a level begins another one ("1" and "10"), the
shorter one has the probability that the longer ones leave. No output is constrained, so any engine
that reports the probabilities of chosen tokens can be asked, and the sum over the levels
(`label_mass`) says whether the judge would have answered with a level at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Any

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput
from rmrl.rewards.judging.thinking import TAGS
from rmrl.rewards.kinds.judge.case import Case, Vote
from rmrl.rewards.kinds.judge.label_mass import mass_reason
from rmrl.rewards.kinds.judge.refusal import is_refusal
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.rewards.kinds.shared.untrusted import neutraliser
from rmrl.types import Sampling

VERDICTS = ("parse", "ask", "expect")
MOST_LEVELS = 101
ONE_TOKEN = Sampling(max_tokens=1, temperature=0.0)
_OWN_SCORE = re.compile(
    r"(?:^|\n)[\s*_#>-]{0,12}(?:(?:final|overall|total) )?(?:score|rating)\b[^\n]{0,40}$",
    re.IGNORECASE,
)


def levels_of(scale: Sequence[float]) -> tuple[str, ...]:
    """Return the levels of a scale (lowest, highest): its whole numbers where these are 3 to 101,
    its tenths where the ends are tenths less than 2 apart; () for every other scale."""
    if not scale:
        return ()
    low, high = min(scale), max(scale)
    if float(low).is_integer() and float(high).is_integer() and 2 <= high - low < MOST_LEVELS:
        return tuple(str(level) for level in range(int(low), int(high) + 1))
    tenths = [low * 10, high * 10]
    if high - low < 2 and all(math.isclose(end, round(end), abs_tol=1e-9) for end in tenths):
        first, last = map(round, tenths)
        return tuple(f"{tenth / 10:.1f}" for tenth in range(first, last + 1))
    return ()


def verdict_problems(verdict: str, scale: Sequence[float], where: str) -> list[str]:
    """Return what is wrong with the entry `verdict`, as sentences that begin with `where`."""
    if verdict != "parse" and not levels_of(scale):
        return [
            f"{where}.verdict={verdict} asks for a level of the scale, and {where}.scale="
            f"{list(scale)} has no levels: give whole numbers 2 to {MOST_LEVELS - 1} apart, e.g."
            " [0,10], or tenths such as [0,1]; or leave verdict=parse"
        ]
    return []


def asking_problem(
    verdict: str, sampling: Sampling, *, reads: bool, entries: Sequence[str] = ()
) -> str:
    """Say which other way to a verdict is configured beside `verdict`, as the end of a sentence; ""
    without one. `reads`: a drop-in has an rm_postprocess. `entries`: further ways, by their
    entry."""
    if verdict == "parse":
        return ""
    ways = list(entries)
    ways += [
        f"sampling.{name}" for name in ("choice", "regex", "json_schema") if getattr(sampling, name)
    ]
    if reads:
        ways.append("a drop-in with rm_postprocess")
    if not ways:
        return ""
    return (
        f"has verdict={verdict}, which asks the judge for its verdict, beside"
        f" {' and '.join(ways)}, which also gives one: leave one of them out"
    )


@dataclass(frozen=True, slots=True)
class Node:
    """A place in the tree where levels part, or where one may end."""

    path: tuple[int, ...]
    """Tokens between the prefix and this place."""
    tokens: tuple[int, ...]
    """Tokens that lead on to a level."""


@dataclass(frozen=True, slots=True)
class AskedVerdict:
    """How likely each level is behind one text."""

    shares: dict[str, float]
    """Level -> its share among the levels."""
    mass: float
    """Probability of all levels together, from 0 to 1."""

    @property
    def level(self) -> str:
        """The likeliest level, among equally likely ones the first."""
        return max(self.shares, key=self.shares.__getitem__)

    def expected(self) -> float:
        """The mean of the levels, weighted by their shares."""
        return math.fsum(float(level) * share for level, share in self.shares.items())


class VerdictTree:
    """Levels as tokens behind a prefix, such as "\\n\\nScore: "."""

    def __init__(self, prefix: str, levels: Sequence[str], tokenizer: Any, *, where: str) -> None:
        """Raises ConfigError where the tokenizer has equal tokens for two levels."""
        self._levels = tuple(levels)
        # Prefix and level together: some tokenizers join the space with the level.
        encoded: list[tuple[int, ...]] = [
            tuple(tokenizer(prefix + level, add_special_tokens=False)["input_ids"])
            for level in levels
        ]
        if len(set(encoded)) < len(encoded):
            raise ConfigError(
                f"{where}: the judge's tokenizer writes two of the verdicts {', '.join(levels)}"
                " with the same tokens; write verdict=parse"
            )
        # A level that only begins the others keeps one token.
        shared = min(len(commonprefix(encoded)), min(map(len, encoded)) - 1)  # type: ignore[type-var]  # noqa: RUF071 (of tokens)
        self.prefix = encoded[0][:shared]
        self._paths = [ids[shared:] for ids in encoded]
        children: dict[tuple[int, ...], dict[int, None]] = {}
        for path in self._paths:
            for depth, token in enumerate(path):
                children.setdefault(path[:depth], {})[token] = None
        self.nodes: list[Node] = [
            Node(path, tuple(tokens))
            for path, tokens in children.items()
            if len(tokens) > 1 or path in self._paths or not path
        ]
        self.length = len(self.prefix) + max(map(len, self._paths))
        """Most tokens that are asked behind a text, the answer included."""

    def verdict(self, logprobs: Sequence[Sequence[float]]) -> AskedVerdict | None:
        """Read the log-probabilities at each node. None: the engine reports none of a level."""
        step: dict[tuple[int, ...], float] = {}
        rest: dict[tuple[int, ...], float] = {}
        for node, numbers in zip(self.nodes, logprobs, strict=True):
            shares = list(map(math.exp, numbers))
            # Rounding, or an engine whose numbers have a common constant.
            total = max(1.0, math.fsum(shares))
            for token, share in zip(node.tokens, shares, strict=True):
                step[(*node.path, token)] = share / total
            rest[node.path] = max(0.0, 1 - math.fsum(shares) / total)
        masses: dict[str, float] = {}
        for level, path in zip(self._levels, self._paths, strict=True):
            steps = [step.get(path[: i + 1], 1.0) for i in range(len(path))]
            masses[level] = math.prod(steps) * rest.get(path, 1.0)
        total = math.fsum(masses.values())
        if not 0 < total < math.inf:
            return None
        shares = {level: mass / total for level, mass in masses.items()}
        return AskedVerdict(shares, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    """The verdict that a judge is asked for behind its own text."""

    levels: tuple[str, ...]
    scores_of: Callable[[AskedVerdict], tuple[float, ...]]
    """A vote's scores."""
    where: str
    """The entry that asks, for messages."""
    least_mass: float = 0.0
    """Probability of all levels together below which there is no verdict."""
    prefix: str = "\n\nScore: "
    own: re.Pattern[str] = _OWN_SCORE
    """A verdict at the end that the judge wrote without being asked. It is asked again in its
    place, so that the probabilities are not those of a copy."""

    def tree(self, tokenizer: Any) -> VerdictTree:
        """Return the levels in the judge's tokens. Raises ConfigError."""
        return VerdictTree(self.prefix, self.levels, tokenizer, where=self.where)

    def text(self, sample: JudgeSample) -> str | None:
        """Return the text behind which the verdict is asked. None: the judge did not come to the
        end of a text, or refused, so that a verdict would be a guess."""
        if not sample.ended or is_refusal(sample.text):
            return None
        return self.own.sub("", sample.output.text.rstrip())

    def requests(
        self, cases: Sequence[tuple[Case, str]], tree: VerdictTree, tokenizer: Any
    ) -> list[GenerateRequest]:
        """Return a request for each node behind each text, those of one text side by side."""
        # What a judge copies out of a response must not end its turn; its thinking keeps its tags.
        neutral = neutraliser(tokenizer)
        requests: list[GenerateRequest] = []
        for case, text in cases:
            parts = TAGS.split(text)
            parts[::2] = map(neutral, parts[::2])
            own = tokenizer("".join(parts), add_special_tokens=False)["input_ids"]
            start = (*case.read.token_ids, *own, *tree.prefix)
            requests += [
                GenerateRequest((*start, *node.path), ONE_TOKEN, choice_tokens=node.tokens)
                for node in tree.nodes
            ]
        return requests

    def vote(self, sample: JudgeSample, tree: VerdictTree, answers: Sequence[TextOutput]) -> Vote:
        """Return the vote behind one sample, from the answers at the nodes."""
        vote = Vote(sample, answers=tuple(answers))
        failed = next((answer for answer in answers if answer.failure), None)
        if failed is not None:
            detail = f"when asked for the verdict: {failed.detail}"
            output = replace(sample.output, failure=failed.failure, detail=detail)
            return replace(vote, sample=replace(sample, output=output))
        verdict = tree.verdict([answer.choice_logprobs for answer in answers])
        if verdict is None:
            return replace(vote, reason="the engine returned no probability of a verdict")
        columns = {"shares": verdict.shares, "label_mass": verdict.mass}
        reason = mass_reason(verdict.mass, self.least_mass)
        scores = None if reason else self.scores_of(verdict)
        return replace(vote, scores=scores, columns=columns, reason=reason)


def asks_for_level(
    verdict: str, scale: Sequence[float], spec: str, *, least_mass: float = 0.0
) -> Asks | None:
    """Return what a judge with the entry `verdict` is asked for. None: its texts are read."""
    if verdict == "parse":
        return None

    def scores_of(levels: AskedVerdict) -> tuple[float]:
        if verdict == "expect":
            return (levels.expected(),)
        return (float(levels.level),)

    where = f"reward.specs.{spec}.verdict={verdict}"
    return Asks(levels=levels_of(scale), scores_of=scores_of, where=where, least_mass=least_mass)
