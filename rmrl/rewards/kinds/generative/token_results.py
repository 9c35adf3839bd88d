"""`score_tokens`: the expected value of one answer, from its probabilities, by a local engine or a
server of decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.kinds.judge.asking import question_of
from rmrl.rewards.kinds.judge.case import judge_columns
from rmrl.rewards.kinds.judge.decision_text import decision_texts
from rmrl.rewards.kinds.judge.label_mass import label_mass, mass_reason
from rmrl.rewards.kinds.judge.token_scores import ScoreTokens
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.rendering import Rendered
from rmrl.rewards.remote.spec import DecisionRequest
from rmrl.types import ScoreItem, ScoreResult


def token_result(
    read: Rendered, output: TextOutput, answers: ScoreTokens, least_mass: float
) -> ScoreResult:
    """Return the expected value by the first token."""
    shared = judge_columns([output], read)
    if output.failure:
        return ScoreResult(value=None, status=output.failure, detail=output.detail, **shared)
    scored = answers.score(output.choice_logprobs)
    if scored is None or not math.isfinite(scored[0]):
        detail = f"the engine returned no probability of the answers, only {output.choice_logprobs}"
        return ScoreResult(value=None, status="provider_error", detail=detail, **shared)
    score, shares = scored
    mass = label_mass(output.choice_logprobs)
    shared["extra"] = {"shares": shares, "label_mass": mass}
    reason = mass_reason(mass, least_mass)
    if reason:
        return ScoreResult(value=None, status="unparseable", detail=reason, **shared)
    return ScoreResult(value=score, **shared)


class ServerAnswers:
    """A server of decisions is asked one question about each response, in one post."""

    def __init__(
        self,
        values: Mapping[str, float],
        context: KindContext,
        *,
        question: str,
        fenced: bool,
        least_mass: float,
    ) -> None:
        """`values`: each answer's. `fenced`, `least_mass`: as in the reward's entries."""
        self._answers = tuple(values)
        self._values = ScoreTokens(values, None, where="score_tokens")
        self._context = context
        self._question = question
        self._fenced = fenced
        self._least_mass = least_mass

    async def score(self, items: Sequence[ScoreItem], rubrics: Sequence[str]) -> list[ScoreResult]:
        """Return one verdict per item."""
        requests = self._requests(items, rubrics)
        calls = self._context.calls_to("remote")
        outputs = await calls.submit("decide", requests, deterministic=True)
        return [
            token_result(_shown(request), answers[0], self._values, self._least_mass)
            for request, answers in zip(requests, outputs, strict=True)
        ]

    def render(self, items: Sequence[ScoreItem], rubrics: Sequence[str]) -> list[Rendered]:
        """Return the text and its question for each item."""
        return list(map(_shown, self._requests(items, rubrics)))

    def _requests(
        self, items: Sequence[ScoreItem], rubrics: Sequence[str]
    ) -> list[DecisionRequest]:
        texts = decision_texts(items, fenced=self._fenced)
        requests: list[DecisionRequest] = []
        for text, rubric in zip(texts, rubrics, strict=True):
            question = question_of(self._question, rubric)
            requests.append(DecisionRequest(text, ((question, self._answers),)))
        return requests


def _shown(request: DecisionRequest) -> Rendered:
    ((question, _),) = request.questions
    return Rendered(f"{request.text}\n--- {question}", (), tokenized=False)
