"""Kind `rubric` with `combine: holistic`: the judge reads all criteria at once and writes one
number.

It is a generative reward whose criteria may differ from row to row. It runs on servers too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property

from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.rubric.row_criteria import Options, RowCriteria
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.untrusted import neutraliser
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult

QUESTION = (
    "How well does the response meet all of these criteria together? Each counts as much as its"
    " weight; one of negative weight names a fault. A response that fails a criterion marked as a"
    " must deserves the lowest score."
)


class HolisticRubric(GenerativeReward):
    """One written verdict on all criteria of a response."""

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        options: Options = spec.options
        self._criteria = RowCriteria(options, f"reward.specs.{spec.name}")
        judging = GenerativeReward.Options(
            question=options.question or QUESTION,
            scale=options.scale,
            votes=options.votes,
            verdict=options.verdict,
            min_label_mass=options.min_label_mass,
            fence=options.fence,
        )
        super().__init__(dataclasses.replace(spec, options=judging), context)

    @cached_property
    def _neutral(self) -> Callable[[str], str]:
        return neutraliser(self._judge.tokenizer)

    def rubric_of(self, item: ScoreItem) -> str:
        """The criteria, numbered, with weights other than 1. Their texts are made inert, as the
        response's is. Raises CriteriaError."""
        judged = self._criteria.of(item)
        lines: list[str] = []
        for number, criterion in zip(judged.numbers, judged.criteria, strict=True):
            notes: list[str] = []
            if criterion.weight != 1:
                notes.append(f"weight {criterion.weight:g}")
            if criterion.must_have:
                notes.append("must")
            note = f" ({', '.join(notes)})" if notes else ""
            lines.append(f"{number}. {self._neutral(criterion.text)}{note}")
        return "\n".join(lines)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One result per item, as `GenerativeReward.score`. Rows without criteria have a
        `user_error`."""
        problems = list(map(self._criteria.problem, items))
        judged: list[ScoreItem] = [
            item for item, problem in zip(items, problems, strict=True) if not problem
        ]
        scored = iter(await super().score(judged))
        results: list[ScoreResult] = []
        for problem in problems:
            if problem:
                results.append(ScoreResult(value=None, status="user_error", detail=problem))
            else:
                results.append(next(scored))
        return results
