"""Votes: from a group judge's text to the outcome of a comparison."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.dropins.verdict import RowError, check_verdict
from rmrl.rewards.judging.parser import TIME_LIMIT_S, Parser
from rmrl.rewards.judging.reader import read_choice
from rmrl.rewards.judging.reading import EXPLANATIONS
from rmrl.rewards.kinds.judge.meta_votes import Choice
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.rewards.kinds.shared.rendering import Exhibit, Rendered
from rmrl.rewards.kinds.shared.truncation import TOKENS
from rmrl.types import ScoreResult, Status

CHOICES: Mapping[str, float] = {"A": 1.0, "B": 0.0, "tie": 0.5}
"""Verdict on a pair -> the first response's share of the point."""

_RANKING = re.compile(
    r"\d{1,3}(?:[ \t]{0,4}>[ \t]{0,4}\d{1,3})+"
    r"|(?i:(?<=ranking: )|(?<=ranking\": ))\d{1,3}(?:,[ \t]{0,4}\d{1,3})+(?![\d.])"
)
_NAME = re.compile(r"(?i)\bresponse[ \t]+(?=\d)|[\[\]#]")


@dataclass(frozen=True, slots=True)
class Input:
    """One comparison as rendered; `exhibits` are the responses in it."""

    rows: tuple[int, ...]
    read: Rendered
    exhibits: tuple[Exhibit, ...]

    def sample(self, output: TextOutput) -> JudgeSample:
        """A sample of the judge that read it."""
        fences = [exhibit.fence for exhibit in self.exhibits]
        return JudgeSample.of(output, prompt=self.read.text, fences=fences)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one comparison."""

    scores: tuple[float, ...] | None
    """One per response in the displayed order, higher is better; None with another status than
    ok."""
    rendered: str
    outputs: tuple[TextOutput, ...]
    status: Status = "ok"
    detail: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """A parser's columns beside the verdict, from the first vote that counts, and those of the
    choice among its votes."""
    left_out: int = 0
    """Tokens that were cut from its prompt and responses (`overlong`)."""
    further: tuple[ScoreResult, ...] = ()
    """Results of the model that chose among its votes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictReading:
    """How the text of a judge without a drop-in is read."""

    choices: tuple[str, ...]
    """Verdicts on a pair; empty where rankings are read."""
    no_preference: Literal["tie", "none"] = "tie"
    parser: Parser | None = None


def own_vote(each: Input, sample: JudgeSample, rules: VerdictReading) -> Vote:
    """The vote in a sample of a judge without a drop-in, or with a parser: a choice on a pair, or a
    ranking."""
    if not sample.readable:
        return Vote(sample)
    text = sample.text
    response = "\n".join(exhibit.text for exhibit in each.exhibits)
    cut = sample.output.finish_reason == "length"
    columns: Mapping[str, str | None] = {}
    if rules.parser is not None:
        match = rules.parser.read(text, response=response)
        columns = match.columns
        if match.timed_out:
            return Vote(sample, reason=f"the parser took more than {TIME_LIMIT_S:g} s")
        if match.verdict is None:
            return Vote(sample, columns=columns)
        # The text of the parser's group is read like a verdict of the shipped form.
        text = match.verdict
        response = ""
        cut = False
    if not rules.choices:
        return Vote(sample, last_ranking(text, len(each.rows)), columns=columns)
    reading = read_choice(
        text, rules.choices, response=response, cut=cut, no_preference=rules.no_preference
    )
    if reading.verdict is not None:
        return Vote(sample, pair_scores(CHOICES[reading.verdict]), columns=columns)
    if reading.reason is None or rules.parser is not None:
        return Vote(sample, columns=columns)
    return Vote(sample, reason=EXPLANATIONS[reading.reason])


def last_ranking(text: str, count: int) -> tuple[float, ...] | None:
    """Scores out of the last "2 > 3 > 1" or "Ranking: 2, 3, 1" in `text` that names each of 1 ..
    `count` once: count - 1 for the best, 0 for the last."""
    for ranking in reversed(_RANKING.findall(_NAME.sub("", text))):
        order = list(map(int, re.split("[>,]", ranking)))
        if sorted(order) == list(range(1, count + 1)):
            scores = [0.0] * count
            for place, number in enumerate(order):
                scores[number - 1] = float(count - 1 - place)
            return tuple(scores)
    return None


@dataclass(frozen=True, slots=True)
class Vote:
    """The verdict of one sample, or why there is none."""

    sample: JudgeSample
    scores: tuple[float, ...] | None = None
    problem: str = ""
    reason: str = ""
    """Why there is no verdict; it precedes "in <the text>"."""
    columns: Mapping[str, str | None] = field(default_factory=dict)
    """A parser's columns beside the verdict."""


def combined(each: Input, votes: Sequence[Vote], choice: Choice | None = None) -> Outcome:
    """The mean of the votes that could be read, or were chosen; for a pair, the majority's
    verdict."""
    outputs = tuple(vote.sample.output for vote in votes)
    counted: Sequence[int] = range(len(votes))
    further: tuple[ScoreResult, ...] = ()
    failed: ScoreResult | None = None
    if choice is not None:
        counted = choice.kept
        further = tuple(choice.scores)
        failed = choice.failure
    usable: list[tuple[float, ...]] = []
    columns: Mapping[str, Any] = votes[0].columns
    for number in counted:
        vote = votes[number]
        if vote.scores is not None:
            if not usable:
                columns = vote.columns
            usable.append(vote.scores)
    if choice is not None:
        columns = {**columns, **choice.columns(len(votes))}
    status: Status = "ok"
    detail = ""
    means = None
    if failed is not None:
        status = failed.status
        detail = failed.detail
    elif usable:
        means = tuple(map(statistics.fmean, zip(*usable, strict=True)))
        if len(each.rows) == 2 and len(usable) > 1:
            means = pair_scores(0.5 if means[0] == means[1] else float(means[0] > means[1]))
    else:
        first = votes[0]
        status, detail = first.sample.failure(problem=first.problem, reason=first.reason)
    read = each.read
    left_out = read.left_out + max((scored.extra.get(TOKENS, 0) for scored in further), default=0)
    return Outcome(means, read.text, outputs, status, detail, columns, left_out, further)


def dropin_vote(returned: Any, read: tuple[Input, JudgeSample], *, listwise: bool) -> Vote:
    """The vote that a drop-in's rm_postprocess returned for one sample."""
    each, sample = read
    if returned is None:
        return Vote(sample)
    if isinstance(returned, RowError):
        return Vote(sample, problem=returned.detail)
    if listwise:
        count = len(each.rows)
        scores: list[float] = []
        if isinstance(returned, list | tuple) and len(returned) == count:
            for entry in returned:
                value = check_verdict(entry).value
                if value is not None:
                    scores.append(value)
        if len(scores) == count:
            return Vote(sample, tuple(scores))
        problem = (
            f"returned {repr(returned)[:80]} for a list of {count} responses; give {count} numbers"
            " in the order shown, or None"
        )
        return Vote(sample, problem=problem)
    verdict = check_verdict(returned)
    if verdict.value is not None and not 0 <= verdict.value <= 1:
        problem = (
            f"returned {verdict.value:g} for a pair; give 1.0 (the first is better), 0.0, 0.5 (a"
            " tie) or None"
        )
        return Vote(sample, problem=problem)
    if verdict.value is None:
        return Vote(sample, problem=verdict.problem)
    return Vote(sample, pair_scores(verdict.value))


def pair_scores(value: float) -> tuple[float, float]:
    """The first one's share of the point -> both shares."""
    return value, 1 - value
