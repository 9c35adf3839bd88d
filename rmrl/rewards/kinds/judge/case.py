"""One question to a judge, with the votes that answered it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.dropins.verdict import Verdict
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.rewards.kinds.shared.rendering import Rendered
from rmrl.rewards.kinds.shared.truncation import TOKENS
from rmrl.rewards.kinds.shared.untrusted import Fence
from rmrl.types import ScoreItem, ScoreResult, Status


@dataclass(frozen=True, slots=True)
class Vote:
    """One sample's verdict, or why there is none."""

    sample: JudgeSample
    scores: tuple[float, ...] | None = None
    """One number for each response that the judge read."""
    problem: str = ""
    """Why rm_postprocess gave no verdict."""
    reason: str = ""
    """Why the text has no verdict. The sentence goes on with "in <the text>"."""
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further columns of the result."""
    answers: tuple[TextOutput, ...] = ()
    """What the judge answered when it was asked for the verdict behind its text."""

    @classmethod
    def of(cls, sample: JudgeSample, verdict: Verdict) -> Vote:
        """The vote on a single response."""
        vote = cls(sample, None, verdict.problem, verdict.reason, verdict.extra)
        if verdict.value is None:
            return vote
        return replace(vote, scores=(verdict.value,))


@dataclass(frozen=True, slots=True)
class Choice:
    """The readable votes on one case, and those of them that count."""

    votes: Sequence[int]
    """Positions of the readable votes, in the order in which they were sampled."""
    keep: int
    """How many count, at most."""
    scores: Sequence[ScoreResult] = ()
    """Results of the meta model, one for each of them; empty where there was nothing to choose."""

    @property
    def failure(self) -> ScoreResult | None:
        """The first critique without a score, None where all have one."""
        for scored in self.scores:
            if scored.value is None:
                detail = f"the meta model gave no score to a critique: {scored.detail}"
                return replace(scored, detail=detail)
        return None

    @property
    def kept(self) -> list[int]:
        """Positions of the votes that count, in order: those with the highest scores, of equal
        ones the earlier; [] with a `failure`."""
        if not self.scores:
            return list(self.votes)
        ranked: list[tuple[float, int]] = []
        for vote, scored in zip(self.votes, self.scores, strict=True):
            if scored.value is None:
                return []
            ranked.append((-scored.value, vote))
        ranked.sort()
        return sorted(vote for _, vote in ranked[: self.keep])

    def columns(self, count: int) -> dict[str, list[Any]]:
        """Columns with an entry for each of all `count` votes: `meta`, the score (None without
        one), and `kept`, whether it counts."""
        meta: list[float | None] = [None] * count
        for vote, scored in zip(self.votes, self.scores, strict=False):
            meta[vote] = scored.value
        counted = self.kept
        return {"meta": meta, "kept": [vote in counted for vote in range(count)]}


@dataclass(slots=True)
class Case:
    """What a judge was asked, and all votes on it in the order in which they were sampled."""

    items: tuple[ScoreItem, ...]
    """The responses in the displayed order."""
    read: Rendered
    """The judge's input."""
    fences: tuple[Fence, ...] = ()
    votes: list[Vote] = field(default_factory=list[Vote])
    choice: Choice | None = None
    """The choice of a second model. None: all votes count."""

    @classmethod
    def of(cls, item: ScoreItem, read: Rendered) -> Case:
        """A question about one response."""
        fences = filter(None, [read.fence])
        return cls((item,), read, tuple(fences))

    def sample(self, output: TextOutput) -> JudgeSample:
        """A sample of the judge that read this."""
        return JudgeSample.of(output, prompt=self.read.text, fences=self.fences)

    @property
    def values(self) -> list[float | None]:
        """The votes on a single response. None: a vote could not be read."""
        return [next(iter(vote.scores or ()), None) for vote in self.votes]

    @property
    def usable(self) -> list[int]:
        """Positions of the votes that could be read."""
        return [place for place, vote in enumerate(self.votes) if vote.scores is not None]

    @property
    def critiques(self) -> dict[int, str]:
        """Position -> text of each vote that could be read."""
        return {place: self.votes[place].sample.text for place in self.usable}

    @property
    def counted(self) -> list[int]:
        """Positions of the votes that make the verdict."""
        if self.choice is not None:
            return self.choice.kept
        return self.usable

    @property
    def second(self) -> Sequence[ScoreResult]:
        """Results of the second model."""
        if self.choice is None:
            return ()
        return self.choice.scores

    def scores(self, places: Sequence[int]) -> list[tuple[float, ...]]:
        """The verdicts of the votes at `places`, for each response those of all votes."""
        return list(zip(*(self.votes[place].scores or () for place in places), strict=True))

    @property
    def failed(self) -> bool:
        """Whether every request for a vote failed."""
        return all(vote.sample.output.failure for vote in self.votes)

    def failure(self, *, min_votes: int = 1, requested: int) -> tuple[Status, str] | None:
        """(status, sentence) where fewer than `min_votes` votes, of the `requested` ones, could be
        read, or the second model gave no score. None: there is a verdict."""
        usable = self.usable
        if len(usable) >= min_votes:
            if self.choice is None or self.choice.failure is None:
                return None
            return self.choice.failure.status, self.choice.failure.detail
        status: Status = "provider_error"
        detail = f"the judge wrote {len(self.votes)} of {requested} votes"
        for vote in self.votes:
            if vote.scores is None:
                status, detail = vote.sample.failure(problem=vote.problem, reason=vote.reason)
                break
        if usable:
            counts = f"{len(usable)} of {len(self.votes)} votes could be read"
            detail = f"{counts} and min_votes is {min_votes}: {detail}"
        return status, detail

    def columns(self, all_votes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Further columns: those that the first counted vote has, `all_votes`, and the second
        model's choice."""
        ranked = [*self.counted, *self.usable, *range(len(self.votes))]
        columns: dict[str, Any] = {}
        for place in ranked[:1]:
            columns |= self.votes[place].columns
        columns |= all_votes or {}
        if self.choice is not None:
            columns |= self.choice.columns(len(self.votes))
        return columns

    @property
    def answers(self) -> tuple[TextOutput, ...]:
        """The answers behind all votes."""
        return tuple(answer for vote in self.votes for answer in vote.answers)

    def shared(self) -> dict[str, Any]:
        """Columns that every judge's result has, from all samples and the second model."""
        shared = judge_columns([vote.sample.output for vote in self.votes], self.read)
        for answer in self.answers:
            shared["tokens_in"] += answer.tokens_in
            shared["tokens_out"] += answer.tokens_out
            shared["cached"] &= answer.cached
        for scored in self.second:
            shared["tokens_in"] += scored.tokens_in
            if scored.status == "ok":
                shared["cached"] &= scored.cached
        return shared

    def cut_by_choice(self) -> tuple[int, str]:
        """Most tokens that were cut for the second model, and the sentence on them."""
        cuts = [(scored.extra.get(TOKENS, 0), scored.detail) for scored in self.second]
        return max(cuts, key=lambda cut: cut[0], default=(0, ""))


def judge_columns(outputs: Sequence[TextOutput], read: Rendered) -> dict[str, Any]:
    """Columns that every result of a judge has, from all its samples."""
    return {
        "raw_text": "\n---\n".join(output.text for output in outputs),
        "rendered": read.text,
        "tokens_in": max(map(attrgetter("tokens_in"), outputs), default=0),
        "tokens_out": sum(map(attrgetter("tokens_out"), outputs)),
        "cached": all(output.cached for output in outputs),
    }
