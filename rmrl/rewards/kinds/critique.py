"""Kind `critique`: a generative model writes a critique of the response, then a scalar model scores
prompt, response and critique.

After "Critique-out-Loud Reward Models" (arXiv 2408.11791), with two models instead of two heads of
one.

    items -> rm_preprocess (or the shipped template) -> critic -> own words
          -> rm_critique (or a further turn) -> scalar model -> score
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rmrl.inference.scoring_base import Runner, TextOutput
from rmrl.rewards.judging.asking import conversation_text, fill, question_of, template
from rmrl.rewards.judging.refusal import is_refusal
from rmrl.rewards.judging.untrusted import neutraliser
from rmrl.rewards.kinds.bradley_terry import (
    pooling_requests,
    prompt_text,
    prompt_turns,
    scalar_result,
    shaped,
)
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.generative import judge_columns, own_words
from rmrl.rewards.kinds.rendering import (
    Rendered,
    chosen,
    fill_in,
    generate_requests,
    judge_inputs,
    named_columns,
    tokenize,
    tokenize_rows,
)
from rmrl.rewards.kinds.row_errors import Batched, Origin
from rmrl.rewards.kinds.truncation import fit_items, judge_limit, pooling_limit, with_cut, with_cuts
from rmrl.rewards.rules.dropin import DropIn, call_with_known_arguments
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult, Status

QUESTION = (
    "Write a short critique of the response: what is right, what is wrong, what is missing. Quote"
    " nothing at length and give no score."
)
INTRODUCTION = "A critique of the reply above:\n"


class CritiqueReward:
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
    whole_groups: ClassVar[bool] = False
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        assert spec.sampling is not None
        self._spec = spec
        self._context = context
        self._sampling = spec.sampling
        self._options: CritiqueReward.Options = spec.options or self.Options()

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> CritiqueReward:
        return cls(spec, context)

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

        Raises RewardFunctionError when the drop-in miscounts; a row it raises on has a
        `user_error`.
        """
        if not items:
            return []
        rendered = self.render(items)
        rows = [i for i, read in enumerate(rendered) if not read.empty]
        scored = await self._criticise([items[i] for i in rows], [rendered[i] for i in rows])
        results = fill_in(rendered, scored)
        left_out = [read.left_out for read in rendered]
        return with_cuts(results, left_out, how=self._spec.overlong, counts=self._context.counts)

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The critic's input for each item, not tokenized for a remote critic."""
        limit = judge_limit(self._spec, self._tokenizer(), self._sampling)
        return fit_items(items, lambda _, cut: self._rendered(cut), limit)

    def _rendered(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        return judge_inputs(
            self._spec, items, self._tokenizer(), fenced=self._options.fence, ask=self._question
        )

    def _tokenizer(self) -> Any:
        if self._spec.remote is not None:
            return None
        return self._context.tokenizer(self._spec.engines["main"].path)

    def render_scorer(self, items: Sequence[ScoreItem], critiques: Sequence[str]) -> list[Rendered]:
        """The scalar model's input for each item and its critique, which is never cut."""
        tokenizer = self._context.tokenizer(self._spec.engines["scorer"].path)
        limit = pooling_limit(self._spec, tokenizer, role="scorer")
        return fit_items(
            items, lambda at, cut: self._rendered_scorer(cut, [critiques[i] for i in at]), limit
        )

    def _rendered_scorer(
        self, items: Sequence[ScoreItem], critiques: Sequence[str]
    ) -> list[Rendered]:
        tokenizer = self._context.tokenizer(self._spec.engines["scorer"].path)
        neutral = neutraliser(tokenizer)
        responses = [neutral(item.response) for item in items]
        safe = [neutral(critique) for critique in critiques]
        if self._spec.dropin is not None and self._spec.dropin.critique is not None:
            origin = _critique_of(self._spec.dropin)
            return tokenize_rows(
                _call_critique(origin, items, (responses, safe, tokenizer)),
                [item.response for item in items],
                tokenizer=tokenizer,
                generation_prompt=False,
                origin=origin,
            )
        inputs = [
            _scorer_input(*row, tokenizer) for row in zip(items, responses, safe, strict=True)
        ]
        where = f"reward '{self._spec.name}'"
        return [tokenize(each, tokenizer, generation_prompt=False, where=where) for each in inputs]

    def _question(self, item: ScoreItem, response: str) -> str:
        question = question_of(self._options.question, self._options.rubric)
        return fill(
            template("critique"),
            {
                "prompt": conversation_text(item.rm_prompt),
                "response": response,
                "question": question,
            },
        )

    async def _criticise(
        self, items: Sequence[ScoreItem], rendered: Sequence[Rendered]
    ) -> list[ScoreResult]:
        if not items:
            return []
        calls = self._context.calls_to("main" if self._spec.remote is None else "remote")
        requests = generate_requests(rendered, self._sampling)
        deterministic = self._sampling.temperature == 0
        samples = await calls.submit("generate", requests, deterministic=deterministic)
        critiques: list[list[_Critique]] = []
        for outputs, read in zip(samples, rendered, strict=True):
            critiques.append([_critique(output, read) for output in outputs])
        scored = await self._score_critiques(items, critiques)
        return [_result(*row) for row in zip(samples, scored, rendered, strict=True)]

    async def _score_critiques(
        self, items: Sequence[ScoreItem], critiques: Sequence[Sequence[_Critique]]
    ) -> list[list[ScoreResult]]:
        """A result per critique; the scalar model reads those without a failure."""
        usable_items: list[ScoreItem] = []
        usable_texts: list[str] = []
        for item, group in zip(items, critiques, strict=True):
            for critique in group:
                if not critique.status:
                    usable_items.append(item)
                    usable_texts.append(critique.text)
        scores = iter(await self._classify(usable_items, usable_texts))
        results: list[list[ScoreResult]] = []
        for group in critiques:
            of_group: list[ScoreResult] = []
            for critique in group:
                if critique.status:
                    of_group.append(
                        ScoreResult(value=None, status=critique.status, detail=critique.detail)
                    )
                else:
                    of_group.append(next(scores))
            results.append(of_group)
        return results

    async def _classify(
        self, items: Sequence[ScoreItem], critiques: Sequence[str]
    ) -> list[ScoreResult]:
        if not items:
            return []
        rendered = self.render_scorer(items, critiques)
        rows = [i for i, read in enumerate(rendered) if not read.empty]
        scored: list[ScoreResult] = []
        if rows:
            full = [rendered[i] for i in rows]
            outputs = await self._context.calls_to("scorer").submit(
                "classify", pooling_requests(full), deterministic=True
            )
            values = shaped(outputs, [items[i] for i in rows], self._spec.dropin)
            scored = [scalar_result(*row) for row in zip(outputs, values, full, strict=True)]
        results: list[ScoreResult] = []
        for read, result in zip(rendered, fill_in(rendered, scored), strict=True):
            results.append(with_cut(result, read.left_out, how=self._spec.overlong))
        return results


@dataclass(frozen=True, slots=True)
class _Critique:
    """One critique, or why there is none."""

    text: str
    status: Status | None = None
    detail: str = ""


def _critique(output: TextOutput, read: Rendered) -> _Critique:
    if output.failure:
        return _Critique("", output.failure, output.detail)
    text, left_open = own_words(output, read)
    if output.finish_reason == "length":
        inside = " inside its thinking block" if left_open else ""
        detail = f"the critic ran out of tokens{inside}; raise sampling.max_tokens"
        return _Critique("", "judge_truncated", detail)
    if is_refusal(text):
        return _Critique("", "judge_refused", f"the critic refused: {text[:120]!r}")
    if not text:
        return _Critique("", "unparseable", f"no critique in {output.text[:120]!r}")
    return _Critique(text)


def _scorer_input(item: ScoreItem, response: str, critique: str, tokenizer: Any) -> Any:
    if not tokenizer.chat_template:
        return f"{prompt_text(item)}\n\n{response}", critique
    reply = {"role": "assistant", "content": response}
    remark = {"role": "user", "content": INTRODUCTION + critique}
    return [*prompt_turns(item), reply, remark]


def _critique_of(dropin: DropIn) -> Origin:
    assert dropin.critique is not None
    return Origin(
        function=dropin.critique,
        what=f"rm_critique of reward '{dropin.name}'",
        file=str(dropin.path),
    )


def _call_critique(
    origin: Origin, items: Sequence[ScoreItem], rest: tuple[list[str], list[str], Any]
) -> list[Any]:
    """The input that rm_critique returns for each row; a `RowError` where it raised on that row."""
    responses, critiques, tokenizer = rest
    prompts = [item.rm_prompt for item in items]
    # Inert responses: a model reads the returned inputs.
    named = named_columns(items) | {"responses": responses}

    def call(rows: Sequence[int]) -> Any:
        arguments = (
            [prompts[i] for i in rows],
            [responses[i] for i in rows],
            [critiques[i] for i in rows],
            tokenizer,
        )
        return call_with_known_arguments(origin.function, arguments, chosen(named, rows))

    return Batched(
        call=call,
        responses=[item.response for item in items],
        what=origin.what,
        noun="input",
        file=origin.file,
    ).rows()


def _result(
    outputs: Sequence[TextOutput], scored: Sequence[ScoreResult], read: Rendered
) -> ScoreResult:
    """One result from the scores of all critiques of a response."""
    shared = judge_columns(outputs, read)
    shared["tokens_in"] += sum(each.tokens_in for each in scored)
    shared["cached"] &= all(each.cached for each in scored if each.status == "ok")
    usable = [each for each in scored if each.value is not None]
    first = [*usable, *scored][0]
    extra = dict(first.extra)
    if len(scored) > 1:
        extra["votes"] = [each.value for each in scored]
    if not usable:
        return ScoreResult(
            value=None, status=first.status, detail=first.detail, extra=extra, **shared
        )
    mean = statistics.fmean(each.value for each in usable if each.value is not None)
    return ScoreResult(value=mean, detail=first.detail, extra=extra, **shared)
