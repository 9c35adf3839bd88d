"""From the votes of a judge on one response to its score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.dropins.verdict import Verdict
from rmrl.rewards.kinds.judge.meta_votes import Choice
from rmrl.rewards.kinds.judge.rounds import VotesUntil
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.rewards.kinds.judge.votes import combine_votes
from rmrl.rewards.kinds.shared.rendering import Rendered
from rmrl.rewards.kinds.shared.truncation import TOKENS
from rmrl.types import ScoreResult, Status


@dataclass(slots=True)
class Ballot:
    """All votes on one response, in the order in which they were sampled."""

    read: Rendered
    """The judge's input."""
    samples: list[JudgeSample]
    verdicts: list[Verdict]
    """One for each sample."""
    choice: Choice | None = None
    """The choice of a second model; None where all votes count."""

    @property
    def values(self) -> list[float | None]:
        """The votes; None where one could not be read."""
        return [verdict.value for verdict in self.verdicts]

    @property
    def usable(self) -> list[int]:
        """Positions of the votes that could be read."""
        votes: list[int] = [
            vote
            for vote, (sample, verdict) in enumerate(zip(self.samples, self.verdicts, strict=True))
            if sample.readable and verdict.value is not None
        ]
        return votes

    @property
    def critiques(self) -> dict[int, str]:
        """Position -> text of each vote that could be read."""
        return {vote: self.samples[vote].text for vote in self.usable}

    @property
    def failed(self) -> bool:
        """Whether every request for a vote failed."""
        return all(sample.output.failure for sample in self.samples)

    def failure(self, usable: Sequence[int], requested: int) -> tuple[Status, str]:
        """(status, sentence) of a response with too few `usable` votes, of those `requested`."""
        for vote, (sample, verdict) in enumerate(zip(self.samples, self.verdicts, strict=True)):
            if vote not in usable:
                return sample.failure(problem=verdict.problem, reason=verdict.reason)
        return "provider_error", f"the judge wrote {len(self.samples)} of {requested} votes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How the votes on a response become its score."""

    votes: str
    """One of VOTES."""
    min_votes: int
    """Votes that must be readable."""
    requested: int
    """Votes asked for at once."""
    until: VotesUntil | None
    ends: tuple[float, float] | None
    """Lowest and highest verdict, where the score is the verdict's place between them; None where
    it is the verdict itself."""

    def result(self, ballot: Ballot) -> ScoreResult:
        """The score of one response, or why it has none."""
        shared = judge_columns([sample.output for sample in ballot.samples], ballot.read)
        usable = ballot.usable
        counted = usable
        choice = ballot.choice
        if choice is not None:
            counted = choice.kept
            for scored in choice.scores:
                shared["tokens_in"] += scored.tokens_in
                if scored.status == "ok":
                    shared["cached"] &= scored.cached
        extra: dict[str, Any] = {}
        ranked = [*counted, *usable, *range(len(ballot.verdicts))]
        if ranked:
            extra |= ballot.verdicts[ranked[0]].extra
        if len(ballot.samples) > 1:
            extra["votes"] = ballot.values
        if self.until is not None:
            extra["votes_asked"] = len(ballot.samples)
            extra["agreed"] = self.until.agreed(ballot.values)
        if choice is not None:
            extra |= choice.columns(len(ballot.samples))
        if len(usable) < self.min_votes:
            status, detail = ballot.failure(usable, self.requested)
            if usable:
                detail = (
                    f"{len(usable)} of {len(ballot.samples)} votes could be read and min_votes is"
                    f" {self.min_votes}: {detail}"
                )
            return ScoreResult(value=None, status=status, detail=detail, extra=extra, **shared)
        detail = ""
        if choice is not None:
            failed = choice.failure
            if failed is not None:
                return ScoreResult(
                    value=None, status=failed.status, detail=failed.detail, extra=extra, **shared
                )
            for scored in choice.scores:
                if scored.extra.get(TOKENS, 0) > extra.get(TOKENS, 0):
                    extra[TOKENS] = scored.extra[TOKENS]
                    detail = scored.detail
        value = self._combined(ballot, counted)
        if self.ends is not None:
            extra["on_scale"] = value
        score = self._placed(value)
        if choice is not None:
            extra["meta_shift"] = score - self._placed(self._combined(ballot, usable))
        return ScoreResult(value=score, detail=detail, extra=extra, **shared)

    def _combined(self, ballot: Ballot, votes: Sequence[int]) -> float:
        """One verdict of these votes."""
        values: list[float] = []
        for vote in votes:
            value = ballot.verdicts[vote].value
            assert value is not None
            values.append(value)
        return combine_votes(values, self.votes)

    def _placed(self, verdict: float) -> float:
        """The score of a verdict."""
        if self.ends is None:
            return verdict
        low, high = self.ends
        return (verdict - low) / (high - low)


def judge_sample(output: TextOutput, read: Rendered) -> JudgeSample:
    """The sample of a judge that read one response."""
    fences = [] if read.fence is None else [read.fence]
    return JudgeSample.of(output, prompt=read.text, fences=fences)


def judge_columns(outputs: Sequence[TextOutput], read: Rendered) -> dict[str, Any]:
    """Columns that every result of a judge has, from all its samples."""
    texts: list[str] = []
    tokens_in = 0
    tokens_out = 0
    cached = True
    for output in outputs:
        texts.append(output.text)
        tokens_in = max(tokens_in, output.tokens_in)
        tokens_out += output.tokens_out
        cached = cached and output.cached
    return {
        "raw_text": "\n---\n".join(texts),
        "rendered": read.text,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "cached": cached,
    }
