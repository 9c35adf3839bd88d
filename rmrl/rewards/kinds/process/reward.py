"""Kind `process`: a process reward model scores a response's steps. The scores reach the
policy's tokens where the steps end.

response -> steps -> prompt + steps through the chat template -> logits at the last token of each
  step -> step scores -> one score
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, ClassVar

from rmrl.config.schema.fields import at_least, choice
from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import PoolingRequest, Runner, TokenOutput
from rmrl.rewards.dropins.verdict import RowError, check_verdict
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.process.parts import (
    ACTIVATIONS,
    Parts,
    cut_parts,
    returned_parts,
    step_score,
)
from rmrl.rewards.kinds.process.step_input import StepForm, step_input
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.dropin_calls import origin_of, take
from rmrl.rewards.kinds.shared.rendering import (
    Rendered,
    nothing_to_read,
    postprocess,
    preprocess,
    without_verdict,
)
from rmrl.rewards.kinds.shared.token_pieces import kept_numbers
from rmrl.rewards.kinds.shared.truncation import Limit, pooling_limit, with_cuts
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult, Step

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": lambda values: math.fsum(values) / len(values),
    "last": lambda values: values[-1],
    "product": math.prod,
    "sum": math.fsum,
}


@dataclass(frozen=True, slots=True)
class _Read:
    """One input of the model and the tokens at which its logits are step scores."""

    rendered: Rendered
    positions: tuple[int, ...]
    parts: Parts


class ProcessReward(Kind):
    """A process reward model.

    Responses are not fenced, since the model follows no instructions. Their special tokens are
    broken all the same.
    """

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options(StepForm):
        """Entries that only this kind has."""

        aggregate: str = choice("min", among=tuple(AGGREGATES))
        """How the step scores become the response's score."""
        positive_label: int = at_least(1, least=0)
        """For a head with several labels: the label whose probability is the score."""
        activation: str = choice("auto", among=ACTIVATIONS)
        """auto (softmax over several labels, sigmoid of a single one), sigmoid (of the label's own
        logit) or none (the raw logit)."""
        to_tokens: bool = True
        """Step scores reach the advantages as rewards of tokens. False: only the response's one
        score counts."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "token_pooling"}
    scores_steps: ClassVar[bool] = True
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        super().__init__(spec, context)
        self._options: ProcessReward.Options = spec.options
        self._dropin = None
        if spec.dropin is not None and spec.dropin.preprocess is not None:
            self._dropin = spec.dropin

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """Entries that do not go together, one sentence each."""
        if not options.joint or options.step_token:
            return []
        return [
            f"{where}.joint={options.joint!r}: it stands behind step_token, which is empty; give"
            " both or neither"
        ]

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One score per item, with its steps' scores.

        Raises RewardFunctionError for a misfit drop-in, RewardError for a misfit head.
        """
        with self._context.preparing("main"):
            reads = await self._context.render(lambda: self._reads(items))
        requests: list[PoolingRequest] = []
        for read in reads:
            if not read.rendered.empty:
                request = PoolingRequest(read.rendered.token_ids, positions=read.positions)
                requests.append(request)
        outputs: list[TokenOutput] = []
        if requests:
            calls = self._context.calls_to()
            outputs = await calls.submit("token_logits", requests, deterministic=True)
        remaining = iter(outputs)
        output_of: dict[int, TokenOutput] = {}
        values: list[list[float]] = []
        for i, read in enumerate(reads):
            values.append([])
            if read.rendered.empty:
                continue
            output_of[i] = next(remaining)
            if not output_of[i].failure:
                values[i] = list(map(self._step_score, output_of[i].logits))
        verdicts = self._verdicts(items, values)
        results: list[ScoreResult] = []
        for i, read in enumerate(reads):
            if i in output_of:
                results.append(self._result(output_of[i], values[i], read, verdicts[i]))
            else:
                results.append(nothing_to_read(read.rendered))
        left_out = [read.rendered.left_out for read in reads]
        return with_cuts(results, left_out, how=self._spec.overlong, counts=self._context.counts)

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The model's input for each item."""
        return [read.rendered for read in self._reads(items)]

    # --- input

    def _reads(self, items: Sequence[ScoreItem]) -> list[_Read]:
        tokenizer = self._context.tokenizer(self._spec.engines["main"].path)
        all_parts: list[Parts | RowError] = []
        if self._dropin is None:
            for item in items:
                all_parts.append(cut_parts(item.response, self._options.separator, tokenizer))
        else:
            origin = origin_of(self._dropin, "rm_preprocess")
            for item, steps in zip(items, preprocess(self._dropin, items, tokenizer), strict=True):
                all_parts.append(returned_parts(steps, item.response, tokenizer, origin=origin))
        limit = pooling_limit(self._spec, tokenizer)
        reads: list[_Read] = []
        for item, parts in zip(items, all_parts, strict=True):
            if isinstance(parts, RowError):
                problem = f"{parts.what} {parts.detail}"
                reads.append(_Read(Rendered("", (), problem=problem), (), Parts((), ())))
                continue
            read = self._read(item, parts, tokenizer)
            if limit is not None:
                read = self._fitted(item, read, limit)
            reads.append(read)
        return reads

    def _fitted(self, item: ScoreItem, whole: _Read, limit: Limit) -> _Read:
        """The read with as many whole steps as fit, unchanged where not even one fits.

        A step that is left out has no score.
        """
        full = len(whole.rendered.token_ids)
        steps = len(whole.parts.texts)
        fits = 0
        too_many = steps
        best = whole
        while full > limit.tokens and too_many - fits > 1:
            count = (fits + too_many) // 2
            parts = whole.parts.only(kept_numbers(steps, count, how=limit.how))
            read = self._read(item, parts, limit.tokenizer)
            if len(read.rendered.token_ids) <= limit.tokens:
                fits = count
                best = read
            else:
                too_many = count
        if best is whole:
            return whole
        rendered = dataclasses.replace(best.rendered, left_out=full - len(best.rendered.token_ids))
        return dataclasses.replace(best, rendered=rendered)

    def _read(self, item: ScoreItem, parts: Parts, tokenizer: Any) -> _Read:
        where = f"reward '{self._spec.name}'"
        rendered, positions = step_input(item, parts, tokenizer, self._options, where=where)
        return _Read(rendered, positions, parts)

    # --- output

    def _step_score(self, logits: Sequence[float]) -> float:
        label = 0 if len(logits) == 1 else self._options.positive_label
        if label >= len(logits):
            raise RewardError(
                f"reward '{self._spec.name}': positive_label={label}, and the model has"
                f" {len(logits)} labels, numbered from 0; give"
                f" reward.specs.{self._spec.name}.positive_label=<0 to {len(logits) - 1}>"
            )
        return step_score(logits, label, self._options.activation)

    def _verdicts(self, items: Sequence[ScoreItem], values: Sequence[list[float]]) -> list[Any]:
        """The aggregates of the step scores, or what rm_postprocess makes of them; None where
        there are none."""
        rows: list[int] = [
            i for i, scores in enumerate(values) if scores and all(map(math.isfinite, scores))
        ]
        verdicts: list[Any] = [None] * len(items)
        if self._dropin is None or self._dropin.postprocess is None or not rows:
            aggregate = AGGREGATES[self._options.aggregate]
            for i in rows:
                verdicts[i] = aggregate(values[i])
            return verdicts
        steps = list(map(list, take(values, rows)))
        scores = postprocess(self._dropin, steps, take(items, rows))
        for i, score in zip(rows, scores, strict=True):
            verdicts[i] = score
        return verdicts

    def _result(
        self, output: TokenOutput, values: Sequence[float], read: _Read, verdict: Any
    ) -> ScoreResult:
        shared: dict[str, Any] = {
            "rendered": read.rendered.text,
            "tokens_in": output.tokens_in,
            "cached": output.cached,
        }
        if output.failure:
            return ScoreResult(value=None, status=output.failure, detail=output.detail, **shared)
        if not values or not all(map(math.isfinite, values)):
            return ScoreResult(
                value=None,
                status="provider_error",
                detail=f"the model gave the step scores {list(values)}",
                **shared,
            )
        shared["raw_text"] = " ".join(f"{value:.6g}" for value in values)
        checked = check_verdict(verdict)
        if checked.value is None:
            return without_verdict(checked, extra=checked.extra, **shared)
        if self._options.to_tokens and read.parts.ends is None:
            detail = (
                "rm_preprocess returned a step that is not in the response as it was given, so its"
                " score belongs to no token; return parts of text_responses in their order, or set"
                f" reward.specs.{self._spec.name}.to_tokens=false"
            )
            return ScoreResult(value=None, status="user_error", detail=detail, **shared)
        extra = {"num_steps": len(values), **checked.extra}
        if read.parts.whole:
            extra["steps_left_out"] = read.parts.whole - len(values)
        steps: tuple[Step, ...] = ()
        if self._options.to_tokens and read.parts.ends is not None:
            ends = read.parts.ends
            steps = tuple(starmap(Step, zip(ends, values, strict=True)))
        return ScoreResult(value=checked.value, steps=steps, extra=extra, **shared)
