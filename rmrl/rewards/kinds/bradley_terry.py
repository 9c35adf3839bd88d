"""Kind `bradley_terry`: a scalar head on the last token (or on a pair encoder's [CLS]); the score is the raw logit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rmrl.rewards.engines.base import PoolingRequest, ValueOutput
from rmrl.rewards.judging.untrusted import neutraliser
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.dedup import score_distinct
from rmrl.rewards.kinds.rendering import Rendered, fill_in, postprocess, preprocess, tokenize
from rmrl.rewards.spec import RewardSpec
from rmrl.rewards.verdict import check_verdict
from rmrl.types import ScoreItem, ScoreResult


class BradleyTerryReward:
    """A scalar reward model.

    Without a drop-in it reads the conversation through its chat template; without a template, the pair (prompt, response).
    """

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        assert spec.engine is not None
        self._spec, self._context = spec, context
        self._dropin, self._path = spec.dropin, spec.engine.path

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> BradleyTerryReward:
        return cls(spec, context)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One raw logit per item (any real number), or what the drop-in's rm_postprocess makes of it."""
        if not items:
            return []
        rendered = self.render(items)
        full = [i for i, read in enumerate(rendered) if read.token_ids]
        return fill_in(rendered, await self._classify([items[i] for i in full], [rendered[i] for i in full]))

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """What the model reads, one input per item."""
        tokenizer = self._context.tokenizer(self._path)
        if self._dropin is not None and self._dropin.preprocess is not None:
            inputs, where = preprocess(self._dropin, items, tokenizer), f"rm_preprocess of reward '{self._spec.name}'"
        else:
            neutral = neutraliser(tokenizer)
            inputs, where = [_default_input(item, neutral(item.response), tokenizer) for item in items], f"reward '{self._spec.name}'"
        return [tokenize(read, tokenizer, generation_prompt=False, where=where) for read in inputs]

    async def _classify(self, items: Sequence[ScoreItem], rendered: Sequence[Rendered]) -> list[ScoreResult]:
        if not items:
            return []
        requests = [PoolingRequest(token_ids=read.token_ids, token_type_ids=read.token_type_ids) for read in rendered]
        keys = [(r.token_ids, r.token_type_ids) for r in requests]
        outputs = await score_distinct(requests, keys, self._context.engine_calls(), method="classify", deterministic=True)
        values: list[Any] = [output.value for output in outputs]
        if self._dropin is not None and self._dropin.postprocess is not None:
            values = postprocess(self._dropin, values, items)
        return [self._result(*row) for row in zip(outputs, values, rendered, strict=True)]

    def _result(self, output: ValueOutput, value: Any, read: Rendered) -> ScoreResult:
        shared: dict[str, Any] = {"rendered": read.text, "tokens_in": output.tokens_in}
        if output.error == "overlong":
            return ScoreResult(value=None, status="overlong", detail="the input is longer than the model's max_model_len", **shared)
        if not math.isfinite(output.value):
            return ScoreResult(value=None, status="provider_error", detail=f"the model gave {output.value}", **shared)
        verdict = check_verdict(value)
        if verdict.value is None:
            detail = f"rm_postprocess {verdict.problem}" if verdict.problem else "rm_postprocess gave no verdict"
            return ScoreResult(
                value=None, status="user_error" if verdict.problem else "unparseable", detail=detail, extra=verdict.extra, **shared
            )
        return ScoreResult(value=verdict.value, extra=verdict.extra, raw_text=f"{output.value:.6g}", **shared)


def _default_input(item: ScoreItem, response: str, tokenizer: Any) -> Any:
    if not tokenizer.chat_template:
        return prompt_text(item), response
    turns = [{"role": "user", "content": item.rm_prompt}] if isinstance(item.rm_prompt, str) else list(item.rm_prompt)
    return [*turns, {"role": "assistant", "content": response}]


def prompt_text(item: ScoreItem) -> str:
    """The rm_prompt as one text: a string as it is, of messages the last user turn."""
    if isinstance(item.rm_prompt, str):
        return item.rm_prompt
    users = [m["content"] for m in item.rm_prompt if m.get("role") == "user"]
    return users[-1] if users else "\n".join(m["content"] for m in item.rm_prompt)
