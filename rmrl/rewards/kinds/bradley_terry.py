"""Kind `bradley_terry`: a scalar head on the last token (or on a pair encoder's [CLS]); the score
is the raw logit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rmrl.inference.scoring_base import PoolingRequest, Runner, ValueOutput
from rmrl.rewards.judging.untrusted import neutraliser
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.rendering import (
    Rendered,
    fill_in,
    postprocess,
    preprocess,
    preprocess_of,
    tokenize,
    tokenize_rows,
    without_verdict,
)
from rmrl.rewards.kinds.truncation import fit_items, pooling_limit, with_cuts
from rmrl.rewards.rules.dropin import DropIn
from rmrl.rewards.rules.verdict import check_verdict
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Message, ScoreItem, ScoreResult


class BradleyTerryReward:
    """A scalar reward model.

    Without a drop-in it reads the conversation through its chat template; without a template, the
    pair (prompt, response). Responses are not fenced: a scalar model obeys nothing. Their special
    tokens are broken all the same.
    """

    roles: ClassVar[Mapping[str, Runner]] = {"main": "pooling"}
    samples: ClassVar[bool] = False
    whole_groups: ClassVar[bool] = False
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        self._spec, self._context = spec, context
        self._dropin, self._path = spec.dropin, spec.engines["main"].path

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> BradleyTerryReward:
        return cls(spec, context)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One raw logit per item (any real number), or what the drop-in's rm_postprocess makes of
        it."""
        if not items:
            return []
        rendered = self.render(items)
        full = [i for i, read in enumerate(rendered) if not read.empty]
        results = fill_in(
            rendered, await self._classify([items[i] for i in full], [rendered[i] for i in full])
        )
        return with_cuts(
            results,
            [read.left_out for read in rendered],
            how=self._spec.overlong,
            counts=self._context.counts,
        )

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """What the model reads, one input per item."""
        limit = pooling_limit(self._spec, self._context.tokenizer(self._path))
        return fit_items(items, lambda _, cut: self._rendered(cut), limit)

    def _rendered(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        tokenizer = self._context.tokenizer(self._path)
        if self._dropin is not None and self._dropin.preprocess is not None:
            return tokenize_rows(
                preprocess(self._dropin, items, tokenizer),
                [item.response for item in items],
                tokenizer=tokenizer,
                generation_prompt=False,
                origin=preprocess_of(self._dropin),
            )
        neutral = neutraliser(tokenizer)
        inputs = [_default_input(item, neutral(item.response), tokenizer) for item in items]
        where = f"reward '{self._spec.name}'"
        return [tokenize(read, tokenizer, generation_prompt=False, where=where) for read in inputs]

    async def _classify(
        self, items: Sequence[ScoreItem], rendered: Sequence[Rendered]
    ) -> list[ScoreResult]:
        if not items:
            return []
        outputs = await self._context.calls_to().submit(
            "classify", pooling_requests(rendered), deterministic=True
        )
        values = shaped(outputs, items, self._dropin)
        return [scalar_result(*row) for row in zip(outputs, values, rendered, strict=True)]


def pooling_requests(rendered: Sequence[Rendered]) -> list[PoolingRequest]:
    """One request per input."""
    return [
        PoolingRequest(token_ids=read.token_ids, token_type_ids=read.token_type_ids)
        for read in rendered
    ]


def shaped(
    outputs: Sequence[ValueOutput], items: Sequence[ScoreItem], dropin: DropIn | None
) -> list[Any]:
    """The logits, or what rm_postprocess makes of those that there are; a logit that is missing
    stays NaN."""
    values: list[Any] = [output.value for output in outputs]
    there = [
        i for i, output in enumerate(outputs) if not output.failure and math.isfinite(output.value)
    ]
    if dropin is None or dropin.postprocess is None or not there:
        return values
    for i, value in zip(
        there,
        postprocess(dropin, [values[i] for i in there], [items[i] for i in there]),
        strict=True,
    ):
        values[i] = value
    return values


def scalar_result(output: ValueOutput, value: Any, read: Rendered) -> ScoreResult:
    """The result of one logit; `value` is what `shaped` made of it."""
    shared: dict[str, Any] = {
        "rendered": read.text,
        "tokens_in": output.tokens_in,
        "cached": output.cached,
    }
    if output.failure:
        return ScoreResult(value=None, status=output.failure, detail=output.detail, **shared)
    if not math.isfinite(output.value):
        return ScoreResult(
            value=None, status="provider_error", detail=f"the model gave {output.value}", **shared
        )
    verdict = check_verdict(value)
    if verdict.value is None:
        return without_verdict(verdict, extra=verdict.extra, **shared)
    return ScoreResult(
        value=verdict.value, extra=verdict.extra, raw_text=f"{output.value:.6g}", **shared
    )


def _default_input(item: ScoreItem, response: str, tokenizer: Any) -> Any:
    return (
        [*prompt_turns(item), {"role": "assistant", "content": response}]
        if tokenizer.chat_template
        else (prompt_text(item), response)
    )


def prompt_turns(item: ScoreItem) -> list[Message]:
    """The rm_prompt as turns: a string is one user turn."""
    return (
        [{"role": "user", "content": item.rm_prompt}]
        if isinstance(item.rm_prompt, str)
        else list(item.rm_prompt)
    )


def prompt_text(item: ScoreItem) -> str:
    """The rm_prompt as one text: a string as it is, of messages the last user turn."""
    if isinstance(item.rm_prompt, str):
        return item.rm_prompt
    users = [m["content"] for m in item.rm_prompt if m.get("role") == "user"]
    return users[-1] if users else "\n".join(m["content"] for m in item.rm_prompt)
