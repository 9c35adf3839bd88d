"""Kind `generative`: a language model reads the response and writes a verdict; a drop-in's rm_postprocess turns it into a score."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.rewards.engines.base import GenerateRequest, TextOutput
from rmrl.rewards.judging.thinking import opens_thinking, strip_thinking
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.dedup import score_distinct
from rmrl.rewards.kinds.rendering import Rendered, fill_in, postprocess, preprocess, tokenize
from rmrl.rewards.spec import RewardSpec
from rmrl.rewards.verdict import Verdict, check_verdict
from rmrl.types import ScoreItem, ScoreResult, Status


class GenerativeReward:
    """An LLM judge. With sampling.n > 1 the score is the mean over the votes that could be read."""

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        assert spec.dropin is not None
        assert spec.sampling is not None
        self._spec, self._context = spec, context
        self._dropin, self._sampling = spec.dropin, spec.sampling
        self._deterministic = spec.sampling.temperature == 0 and spec.sampling.n == 1

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> GenerativeReward:
        return cls(spec, context)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One verdict per item. Raises RewardFunctionError when the drop-in raises or miscounts."""
        if not items:
            return []
        rendered = self.render(items)
        full = [i for i, read in enumerate(rendered) if read.token_ids]
        return fill_in(rendered, await self._judge([items[i] for i in full], [rendered[i] for i in full]))

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """What the judge is told, one input per item."""
        assert self._spec.engine is not None
        tokenizer = self._context.tokenizer(self._spec.engine.path)
        where = f"rm_preprocess of reward '{self._spec.name}'"
        return [tokenize(read, tokenizer, generation_prompt=True, where=where) for read in preprocess(self._dropin, items, tokenizer)]

    async def _judge(self, items: Sequence[ScoreItem], rendered: Sequence[Rendered]) -> list[ScoreResult]:
        if not items:
            return []
        asked = await self._ask(rendered)
        answers = [
            [_answer(output, opened=opens_thinking(read.text)) for output in group] for read, group in zip(rendered, asked, strict=True)
        ]
        verdicts = iter(self._read(items, answers))
        votes = [[(answer, next(verdicts)) for answer in group] for group in answers]
        return [self._result(vote, read) for vote, read in zip(votes, rendered, strict=True)]

    async def _ask(self, rendered: Sequence[Rendered]) -> list[list[TextOutput]]:
        requests = [GenerateRequest(token_ids=read.token_ids, sampling=self._sampling) for read in rendered]
        calls = self._context.engine_calls()
        return await score_distinct(requests, [r.token_ids for r in requests], calls, method="generate", deterministic=self._deterministic)

    def _read(self, items: Sequence[ScoreItem], answers: Sequence[Sequence[_Answer]]) -> list[Verdict]:
        owners = [item for item, group in zip(items, answers, strict=True) for _ in group]
        texts = [answer.text for group in answers for answer in group]
        return [check_verdict(returned) for returned in postprocess(self._dropin, texts, owners)]

    def _result(self, votes: Sequence[tuple[_Answer, Verdict]], read: Rendered) -> ScoreResult:
        usable = [verdict for answer, verdict in votes if _failure(answer, verdict) is None]
        shared: dict[str, Any] = {
            "raw_text": "\n---\n".join(answer.output.text for answer, _ in votes),
            "rendered": read.text,
            "tokens_in": max((answer.output.tokens_in for answer, _ in votes), default=0),
            "tokens_out": sum(answer.output.tokens_out for answer, _ in votes),
        }
        if not usable:
            status, detail = _failure(*votes[0]) or ("provider_error", "")
            return ScoreResult(value=None, status=status, detail=detail, extra=votes[0][1].extra, **shared)
        value = statistics.fmean(verdict.value for verdict in usable if verdict.value is not None)
        return ScoreResult(value=value, extra=usable[0].extra, **shared)


@dataclass(frozen=True, slots=True)
class _Answer:
    """One sample and what of it may hold a verdict. `cut`: it ended inside its thinking, for want of tokens."""

    output: TextOutput
    text: str
    cut: bool


def _answer(output: TextOutput, *, opened: bool) -> _Answer:
    text, left_open = strip_thinking(output.text, opened=opened)
    return _Answer(output, text, left_open and output.finish_reason == "length")


def _failure(answer: _Answer, verdict: Verdict) -> tuple[Status, str] | None:
    """Why this vote does not count; None when it does."""
    if answer.output.finish_reason == "overlong":
        return "overlong", "the judge's input is longer than its max_model_len"
    if answer.cut:
        return "judge_truncated", "the judge ran out of tokens inside its thinking block; raise sampling.max_tokens"
    if verdict.problem:
        return "user_error", f"rm_postprocess {verdict.problem}"
    if verdict.value is not None:
        return None
    if answer.output.finish_reason == "length":
        return "judge_truncated", "the judge ran out of tokens before a verdict; raise sampling.max_tokens"
    return "unparseable", f"no verdict in {answer.output.text[:120]!r}"
