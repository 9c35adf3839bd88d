"""Votes: from a group judge's text to the outcome of a comparison."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.dropins.verdict import RowError, check_verdict
from rmrl.rewards.judging.parser import TIME_LIMIT_S, Parser
from rmrl.rewards.judging.reader import read_choice
from rmrl.rewards.judging.reading import EXPLANATIONS
from rmrl.rewards.kinds.group.ranking import last_ranking
from rmrl.rewards.kinds.judge.case import Case, Vote
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.types import ScoreResult, Status

CHOICES: Mapping[str, float] = {"A": 1.0, "B": 0.0, "tie": 0.5}
"""Verdict on a pair -> the first response's share of the point."""


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
    answers: tuple[TextOutput, ...] = ()
    """The judge's answers when it was asked for its verdicts."""
    further: tuple[ScoreResult, ...] = ()
    """Results of the model that chose among its votes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictReading:
    """How the text of a judge without a drop-in is read."""

    choices: tuple[str, ...]
    """Verdicts on a pair, empty where rankings are read."""
    no_preference: Literal["tie", "none"] = "tie"
    parser: Parser | None = None
    fenced: bool = True
    """The responses stand in their fences."""


def own_vote(case: Case, sample: JudgeSample, rules: VerdictReading) -> Vote:
    """The vote in a sample of a judge without a drop-in, or with a parser: a choice on a pair, or a
    ranking."""
    text = sample.text
    displayed = [fence.text for fence in case.fences]
    if rules.fenced:
        displayed = [fence.wrap(fence.text) for fence in case.fences]
    response = "\n".join(displayed)
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
        return Vote(sample, last_ranking(text, len(case.items)), columns=columns)
    reading = read_choice(
        text, rules.choices, response=response, cut=cut, no_preference=rules.no_preference
    )
    if reading.verdict is not None:
        return Vote(sample, pair_scores(CHOICES[reading.verdict]), columns=columns)
    if reading.reason is None or rules.parser is not None:
        return Vote(sample, columns=columns)
    return Vote(sample, reason=EXPLANATIONS[reading.reason])


def outcome(case: Case, *, requested: int) -> Outcome:
    """The mean of the votes that count. For a pair, the majority's verdict."""
    if case.read.empty:
        problem = case.read.problem or "the judge's input is empty: it has no token"
        return Outcome(None, "", (), "user_error", problem)
    status: Status = "ok"
    detail = ""
    means = None
    failure = case.failure(requested=requested)
    if failure is not None:
        status, detail = failure
    else:
        counted = case.counted
        means = tuple(map(statistics.fmean, case.scores(counted)))
        if len(means) == 2 and len(counted) > 1:
            means = pair_scores(0.5 if means[0] == means[1] else float(means[0] > means[1]))
    return Outcome(
        means,
        case.read.text,
        tuple(vote.sample.output for vote in case.votes),
        status,
        detail,
        case.columns(),
        case.read.left_out + case.cut_by_choice()[0],
        case.answers,
        tuple(case.second),
    )


def dropin_vote(returned: Any, sample: JudgeSample, *, count: int, listwise: bool) -> Vote:
    """The vote that a drop-in's rm_postprocess returned for one sample on `count` responses."""
    if returned is None:
        return Vote(sample)
    if isinstance(returned, RowError):
        return Vote(sample, problem=returned.detail)
    if listwise:
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
