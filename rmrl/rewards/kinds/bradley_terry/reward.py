"""Kind `bradley_terry`: a classifier head on the last token (or on a pair encoder's [CLS]). The
score is the raw logit of a head with one label; of several labels one, or a weighted sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, ClassVar

from rmrl.config.schema.fields import choice
from rmrl.inference.reward_engine_base import PoolingRequest, Runner, ValueOutput
from rmrl.models.label_head import ACTIVATIONS
from rmrl.rewards.dropins.dropin import DropIn
from rmrl.rewards.dropins.verdict import check_verdict
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.dropin_calls import take
from rmrl.rewards.kinds.shared.inputs import Inputs, answers_in_parts
from rmrl.rewards.kinds.shared.rendering import (
    Rendered,
    fill_in,
    postprocess,
    preprocess,
    readable,
    reads_all_at_once,
    tokenized,
    without_verdict,
)
from rmrl.rewards.kinds.shared.truncation import pooling_limit, with_cuts
from rmrl.rewards.kinds.shared.untrusted import neutraliser
from rmrl.rewards.reads.turns import prompt_turns
from rmrl.rewards.specs.labels import LabelReading, both_problems
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Message, ScoreItem, ScoreResult


class BradleyTerryReward(Kind):
    """A scalar reward model, or a classifier.

    Without a drop-in it reads the conversation through its chat template; without a template, the
    pair (prompt, response). Responses are not fenced, since a scalar model follows no instructions.
    Their special tokens are broken all the same.
    """

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        label: str | int | None = None
        """The label whose value is the score: a name of config.json's id2label, or its index."""
        label_weights: dict[str | int, float] = field(default_factory=dict[str | int, float])
        """Label -> weight: the score is the weighted sum of their values."""
        activation: str = choice("auto", among=("auto", *ACTIVATIONS))
        """softmax, sigmoid or none; auto: what transformers' text-classification pipeline applies,
        but none for a head with one label where no label is named."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "pooling"}
    truncates: ClassVar[bool] = True
    labels_of: ClassVar[str] = "main"

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        super().__init__(spec, context)
        self._dropin = spec.dropin
        self._path = spec.engines["main"].path

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """Problems of the entries, one sentence each."""
        return both_problems(options.label, options.label_weights, where=where)

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One raw logit per item (any real number), its labels' score, or what the drop-in's
        rm_postprocess makes of them."""
        if not items:
            return []
        context = self._context
        labels = self._spec.labels

        async def send(part: list[Rendered]) -> Sequence[ValueOutput]:
            return await logits_of(part, context, role="main", labels=labels)

        rendered, outputs = await answers_in_parts(
            self._inputs().parts(items), send, rows=len(items), context=context, role="main"
        )
        results = classified(items, rendered, outputs, dropin=self._dropin, labels=labels)
        left_out = [read.left_out for read in rendered]
        return with_cuts(results, left_out, how=self._spec.overlong, counts=self._context.counts)

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The model's input for each item."""
        return self._inputs().rendered(items)

    def _conversations(
        self, items: Sequence[ScoreItem], tokenizer: Any, neutral: Callable[[str], str]
    ) -> list[Any]:
        return conversations(items, tokenizer, neutral)

    def _inputs(self) -> Inputs:
        spec = self._spec
        tokenizer = self._context.tokenizer(self._path)
        neutral = neutraliser(tokenizer)

        def read(items: Sequence[ScoreItem]) -> list[Any]:
            if reads_all_at_once(spec):
                assert spec.dropin is not None
                return preprocess(spec.dropin, items, tokenizer)
            return self._conversations(items, tokenizer, neutral)

        def tokens(reads: Sequence[Any], items: Sequence[ScoreItem]) -> list[Rendered]:
            return tokenized(spec, reads, items, tokenizer, generation_prompt=False)

        return Inputs(
            read=read,
            tokenized=tokens,
            at_once=reads_all_at_once(spec),
            limit=pooling_limit(spec, tokenizer),
        )


def conversations(
    items: Sequence[ScoreItem], tokenizer: Any, neutral: Callable[[str], str]
) -> list[Any]:
    """What a scalar model reads for each item: the conversation, or without a chat template the
    pair (prompt, response). `neutral` breaks special tokens. Their training reads the same."""
    if not tokenizer.chat_template:
        return [(prompt_text(item), neutral(item.response)) for item in items]
    turns: list[Any] = []
    for item in items:
        answer: Message = {"role": "assistant", "content": neutral(item.response)}
        turns.append([*prompt_turns(item.rm_prompt), answer])
    return turns


async def logits_of(
    rendered: Sequence[Rendered],
    context: KindContext,
    *,
    role: str,
    labels: LabelReading | None = None,
) -> list[ValueOutput]:
    """The model's score for each input that holds something to read, with the values of its
    `labels`."""
    requests: list[PoolingRequest] = [
        PoolingRequest(read.token_ids, token_type_ids=read.token_type_ids)
        for read in rendered
        if not read.empty
    ]
    if not requests:
        return []
    calls = context.calls_to(role)
    if labels is None:
        return await calls.submit("classify", requests, deterministic=True)
    outputs = await calls.submit("label_logits", requests, deterministic=True)
    return list(map(labels.score, outputs))


def classified(
    items: Sequence[ScoreItem],
    rendered: Sequence[Rendered],
    outputs: Sequence[ValueOutput],
    *,
    dropin: DropIn | None,
    labels: LabelReading | None = None,
) -> list[ScoreResult]:
    """The model's result for each rendered item, from its `logits_of`. The drop-in's
    rm_postprocess, if it has one, shapes the scores."""
    rows, inputs = readable(items, rendered)
    if not rows:
        return fill_in(rendered, [])
    values = shaped(outputs, rows, dropin, of_labels=labels is not None and not labels.weights)
    return fill_in(
        rendered, list(starmap(scalar_result, zip(outputs, values, inputs, strict=True)))
    )


def shaped(
    outputs: Sequence[ValueOutput],
    items: Sequence[ScoreItem],
    dropin: DropIn | None,
    *,
    of_labels: bool = False,
) -> list[Any]:
    """The outputs' values, or the scores that rm_postprocess makes of them. A missing one stays
    NaN. `of_labels`: it gets label -> value for each response instead."""
    values: list[Any] = []
    rows: list[int] = []
    for i, output in enumerate(outputs):
        values.append(dict(output.extra) if of_labels and not output.failure else output.value)
        if not output.failure and math.isfinite(output.value):
            rows.append(i)
    if dropin is None or dropin.postprocess is None or not rows:
        return values
    scores = postprocess(dropin, take(values, rows), take(items, rows))
    for i, score in zip(rows, scores, strict=True):
        values[i] = score
    return values


def scalar_result(output: ValueOutput, value: Any, read: Rendered) -> ScoreResult:
    """One output's result; `value` is what `shaped` made of it."""
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
    extra = {**dict(output.extra), **verdict.extra}
    if verdict.value is None:
        return without_verdict(verdict, extra=extra, **shared)
    raw_text = f"{output.value:.6g}"
    if output.extra:
        raw_text = ", ".join(f"{name} {number:.6g}" for name, number in output.extra)
    return ScoreResult(value=verdict.value, extra=extra, raw_text=raw_text, **shared)


def prompt_text(item: ScoreItem) -> str:
    """The rm_prompt as one text: a string as it is, of messages the last user turn."""
    if isinstance(item.rm_prompt, str):
        return item.rm_prompt
    for turn in reversed(item.rm_prompt):
        if turn.get("role") == "user":
            return turn["content"]
    return "\n".join(turn["content"] for turn in item.rm_prompt)
