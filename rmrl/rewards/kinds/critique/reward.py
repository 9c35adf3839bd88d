"""Kind `critique`: a generative model writes a critique of the response, then a scalar model scores
prompt, response and critique.

After "Critique-out-Loud Reward Models" (arXiv 2408.11791), with two models, where the paper has
two heads of one.

    items -> rm_preprocess (or the shipped template) -> critic -> own words
          -> rm_critique (or a further turn) -> scalar model -> score
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, ClassVar

from rmrl.inference.reward_engine_base import Runner, TextOutput
from rmrl.rewards.kinds.bradley_terry.reward import classified, logits_of
from rmrl.rewards.kinds.critique.scorer_reads import scorer_reads
from rmrl.rewards.kinds.judge.asking import conversation_text, question_of
from rmrl.rewards.kinds.judge.case import Case, judge_columns
from rmrl.rewards.kinds.judge.judge import Judge
from rmrl.rewards.kinds.judge.refusal import is_refusal
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.dropin_calls import call_dropin, named_columns, origin_of, take
from rmrl.rewards.kinds.shared.inputs import Inputs
from rmrl.rewards.kinds.shared.rendering import (
    Rendered,
    readable,
    tokenize_all,
    tokenize_rows,
)
from rmrl.rewards.kinds.shared.truncation import fit_items, pooling_limit, with_cut
from rmrl.rewards.kinds.shared.untrusted import neutraliser
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult, Status

QUESTION = (
    "Write a short critique of the response: what is right, what is wrong, what is missing. Quote"
    " nothing at length and give no score."
)


class CritiqueReward(Kind):
    """Two models, one after the other. With sampling.n > 1 the score is the mean over the critiques
    that could be scored.

    The scalar model reads the prompt, the reply as an assistant turn, and the critique as a further
    user turn: a reply cannot end its own turn, so it cannot write its own critique. Without a chat
    template it reads the pair (prompt and reply, critique).
    """

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        scorer: dict[str, Any] = field(default_factory=dict)
        """The scalar model: {path: <folder or hub id>, engine: {...}}."""
        question: str = QUESTION
        """The critic's task without a drop-in."""
        rubric: str = ""
        """Criteria of the critique, in words, without a drop-in."""
        fence: bool = True
        """Responses stand between markers that they cannot contain when the critic reads them."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "generate", "scorer": "pooling"}
    samples: ClassVar[bool] = True
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        assert spec.sampling is not None
        super().__init__(spec, context)
        self._judge = Judge(spec, context, spec.sampling)
        self._options: CritiqueReward.Options = spec.options

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """Problems of the entries, one sentence each."""
        scorer: Any = options.scorer
        if isinstance(scorer, Mapping) and scorer.get("path"):
            return []
        return [
            f"{where}.scorer: the model that scores the critiques is not named: give"
            f" {where}.scorer.path=<folder or hub id>"
        ]

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One score per item: the raw logit (any real number), or the score that rm_postprocess
        makes of it; `raw_text` is the critique.

        Raises RewardFunctionError when the drop-in miscounts. A row it raises on has a
        `user_error`.
        """
        if not items:
            return []
        rendered, samples = await self._judge.answers(items, self._inputs())
        rows, inputs = readable(items, rendered)
        critiques: list[list[Critique]] = []
        for item, outputs, read in zip(rows, samples, inputs, strict=True):
            case = Case.of(item, read)
            critiques.append([Critique.of(case.sample(output)) for output in outputs])
        scores = await self._score_critiques(rows, critiques)
        judged = list(starmap(_result, zip(samples, scores, inputs, strict=True)))
        return self._judge.results(rendered, judged)

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The critic's input for each item, not tokenized for a remote critic."""
        return self._inputs().rendered(items)

    def _inputs(self) -> Inputs:
        options = self._options
        task = question_of(options.question, options.rubric)

        def values(item: ScoreItem) -> dict[str, str]:
            return {"prompt": conversation_text(item.rm_prompt), "question": task}

        return self._judge.inputs("critique", values, fenced=options.fence)

    def render_scorer(self, items: Sequence[ScoreItem], critiques: Sequence[str]) -> list[Rendered]:
        """The scalar model's input for each item and its critique, which is never cut."""
        tokenizer = self._context.tokenizer(self._spec.engines["scorer"].path)
        limit = pooling_limit(self._spec, tokenizer, role="scorer")
        neutral = neutraliser(tokenizer)
        safe = list(map(neutral, critiques))

        def render(positions: Sequence[int], shorter: Sequence[ScoreItem]) -> list[Rendered]:
            responses = [neutral(item.response) for item in shorter]
            return self._scorer_inputs(shorter, (responses, take(safe, positions), tokenizer))

        return fit_items(items, render, limit)

    def _scorer_inputs(
        self, items: Sequence[ScoreItem], texts: tuple[list[str], list[str], Any]
    ) -> list[Rendered]:
        """`texts`: the inert responses and critiques, and the scorer's tokenizer."""
        responses, critiques, tokenizer = texts
        dropin = self._spec.dropin
        if dropin is not None and dropin.critique is not None:
            origin = origin_of(dropin, "rm_critique")
            named = named_columns(items)
            returned = call_dropin(
                origin,
                ([item.rm_prompt for item in items], responses, critiques),
                # Inert responses: a model reads the returned inputs.
                {**named, "responses": responses},
                responses=named["responses"],
                rest=(tokenizer,),
            )
            return tokenize_rows(
                returned,
                named["responses"],
                tokenizer=tokenizer,
                generation_prompt=False,
                origin=origin,
            )
        reads = scorer_reads(items, responses, critiques, tokenizer)
        where = f"reward '{self._spec.name}'"
        return tokenize_all(reads, tokenizer, generation_prompt=False, where=where)

    async def _score_critiques(
        self, items: Sequence[ScoreItem], critiques: Sequence[Sequence[Critique]]
    ) -> list[list[ScoreResult]]:
        """A result per critique. The scalar model reads those without a failure."""
        usable_items: list[ScoreItem] = []
        usable_texts: list[str] = []
        for item, group in zip(items, critiques, strict=True):
            for critique in group:
                if critique.failure is None:
                    usable_items.append(item)
                    usable_texts.append(critique.text)
        scored: list[ScoreResult] = []
        if usable_items:
            context = self._context
            with context.preparing("scorer"):
                rendered = await context.render(
                    lambda: self.render_scorer(usable_items, usable_texts)
                )
            outputs = await logits_of(rendered, context, role="scorer")
            classes = classified(usable_items, rendered, outputs, dropin=self._spec.dropin)
            for read, result in zip(rendered, classes, strict=True):
                scored.append(with_cut(result, read.left_out, how=self._spec.overlong))
        scores = iter(scored)
        return [[critique.failure or next(scores) for critique in group] for group in critiques]


@dataclass(frozen=True, slots=True)
class Critique:
    """One critique, or the result where there is none."""

    text: str
    failure: ScoreResult | None = None

    @classmethod
    def of(cls, sample: JudgeSample) -> Critique:
        """The critique that a sample holds."""
        output = sample.output
        text = sample.text
        if output.failure:
            return cls._failed(output.failure, output.detail)
        if output.finish_reason == "length":
            inside = " inside its thinking block" if sample.cut else ""
            detail = f"the critic ran out of tokens{inside}; raise sampling.max_tokens"
            return cls._failed("judge_truncated", detail)
        if is_refusal(text):
            return cls._failed("judge_refused", f"the critic refused: {text[:120]!r}")
        if not text:
            return cls._failed("unparseable", f"no critique in {output.text[:120]!r}")
        return cls(text)

    @classmethod
    def _failed(cls, status: Status, detail: str) -> Critique:
        return cls("", ScoreResult(value=None, status=status, detail=detail))


def _result(
    outputs: Sequence[TextOutput], scored: Sequence[ScoreResult], read: Rendered
) -> ScoreResult:
    """One result from the scores of a response's critiques."""
    shared = judge_columns(outputs, read)
    usable: list[ScoreResult] = []
    values: list[float] = []
    for result in scored:
        shared["tokens_in"] += result.tokens_in
        if result.status == "ok":
            shared["cached"] &= result.cached
        if result.value is not None:
            usable.append(result)
            values.append(result.value)
    first = [*usable, *scored][0]
    extra = dict(first.extra)
    if len(scored) > 1:
        extra["votes"] = [result.value for result in scored]
    if not usable:
        return ScoreResult(
            value=None, status=first.status, detail=first.detail, extra=extra, **shared
        )
    mean = statistics.fmean(values)
    return ScoreResult(value=mean, detail=first.detail, extra=extra, **shared)
