"""Kind `generative`: a language model reads the response and writes a verdict.

    items -> rm_preprocess (or the shipped template) -> judge -> own words, thinking stripped ->
      rm_postprocess (or the last verdict)

With `score_tokens` nothing is written nor read: the score is how likely the judge is to begin each
answer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rmrl.errors import ConfigError
from rmrl.inference.scoring_base import Runner, TextOutput
from rmrl.rewards.judging.asking import answer_form, conversation_text, fill, question_of, template
from rmrl.rewards.judging.parser import Parser, parser_problem
from rmrl.rewards.judging.refusal import is_refusal
from rmrl.rewards.judging.thinking import opens_thinking, strip_thinking
from rmrl.rewards.judging.token_scores import ScoreTokens
from rmrl.rewards.judging.untrusted import Fence
from rmrl.rewards.judging.votes import VOTES, combine_votes, numeric, parsed_vote, read_vote
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.rendering import (
    Rendered,
    fill_in,
    generate_requests,
    judge_inputs,
    postprocess,
)
from rmrl.rewards.kinds.truncation import fit_items, judge_limit, with_cuts
from rmrl.rewards.rules.dropin import DropIn
from rmrl.rewards.rules.verdict import Verdict, check_verdict
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult, Status

RATE = "How good is the response?"
CHECK = "Is the response a correct and helpful answer to the prompt?"


class GenerativeReward:
    """An LLM judge. With sampling.n > 1 the score is computed from the votes that could be read."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        votes: str = "mean"
        """Combination of n votes into one score: mean, median or majority (the most frequent value;
        equally frequent ones are averaged)."""
        min_votes: int = 1
        """Votes that must be readable; with fewer the score is missing."""
        score_tokens: dict[str, float] = field(default_factory=dict)
        """Answers and their values, e.g. {"Yes": 1, "No": 0}: the score is the expected value of
        the judge's first token."""
        question: str = ""
        """The question without a drop-in; empty: a question on quality or, with `score_tokens`, on
        correctness."""
        rubric: str = ""
        """Criteria of the verdict, in words, without a drop-in."""
        scale: list[float] = field(default_factory=lambda: [0.0, 10.0])
        """Lowest and highest verdict of a judge without a drop-in; others do not count. []: any
        number."""
        normalize: bool = True
        """Without a drop-in: the score is the verdict's place from 0 to 1 on `scale`, or between
        the lowest and the highest of a numeric `sampling.choice`; the verdict itself is column
        `on_scale`. False: the score is the verdict itself."""
        fence: bool = True
        """Responses stand between markers that they cannot contain."""
        parser: str = ""
        """Regular expression that reads the verdict, instead of rm_postprocess: its group
        (?P<score>...) is the verdict, other named groups are columns."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "generate"}
    samples: ClassVar[bool] = True
    whole_groups: ClassVar[bool] = False
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        assert spec.sampling is not None
        self._spec = spec
        self._context = context
        self._options: GenerativeReward.Options = spec.options or self.Options()
        self._sampling = spec.sampling
        if self._options.score_tokens:
            self._sampling = token_sampling(spec.sampling)
        self._parser = Parser(self._options.parser, "score") if self._options.parser else None
        self._range = _range(self._options, spec)
        self._path = "" if spec.remote is not None else spec.engines["main"].path
        if self._options.score_tokens and spec.remote is not None:
            raise ConfigError(
                f"reward.specs.{spec.name}.score_tokens: a server does not tell the probabilities"
                " of chosen tokens; give a checkpoint with path=<folder or hub id> instead, or ask"
                " for a written verdict with sampling.choice=[...]"
            )

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> GenerativeReward:
        return cls(spec, context)

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """Problems of single entries, one sentence each."""
        problems = [f"{where}.{problem}" for problem in _token_problems(options.score_tokens)]
        if options.votes not in VOTES:
            problems.append(f"{where}.votes={options.votes}: give {', '.join(VOTES)}")
        if options.min_votes < 1:
            problems.append(f"{where}.min_votes={options.min_votes}: give at least 1 vote")
        problem = parser_problem(options.parser, "score")
        if problem:
            problems.append(f"{where}.parser={options.parser!r}: {problem}")
        if options.parser and options.score_tokens:
            problems.append(
                f"{where}.parser: with score_tokens nothing is written that it could read; leave"
                " one of them out"
            )
        if not _is_scale(options.scale):
            problems.append(
                f"{where}.scale={options.scale!r}: give the lowest and the highest verdict, e.g."
                " [0,10], or [] for any number"
            )
        return problems

    @classmethod
    def dropin_problem(cls, dropin: DropIn | None, options: Options, sampling: Sampling) -> str:
        """Why the reward has no question or no way to read the answer, as the end of a sentence; ""
        without a problem."""
        if not options.score_tokens and options.min_votes > sampling.n:
            return (
                f"needs min_votes={options.min_votes} of sampling.n={sampling.n} votes: raise"
                " sampling.n or lower min_votes"
            )
        if (
            dropin is not None
            or options.score_tokens
            or options.rubric.strip()
            or numeric(sampling.choice)
        ):
            return ""
        return (
            "has no drop-in that says how to ask and how to read the answer: write"
            " reward_functions/<name>.py with rm_preprocess and rm_postprocess, or name one with"
            " reward.specs.<name>.function; or let the shipped template ask, with"
            " reward.specs.<name>.rubric='<what is good>', sampling.choice=['1','2','3'] or"
            " score_tokens={Yes:1,No:0}"
        )

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One verdict per item. Raises RewardFunctionError when the drop-in miscounts, ConfigError
        for unusable answers; a row the drop-in raises on has a `user_error`."""
        if not items:
            return []
        rendered = self.render(items)
        rows = [i for i, read in enumerate(rendered) if not read.empty]
        judged = await self._judge([items[i] for i in rows], [rendered[i] for i in rows])
        results = fill_in(rendered, judged)
        left_out = [read.left_out for read in rendered]
        return with_cuts(results, left_out, how=self._spec.overlong, counts=self._context.counts)

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The judge's input for each item, not tokenized for a remote judge."""
        limit = judge_limit(self._spec, self._tokenizer(), self._sampling)
        return fit_items(items, lambda _, cut: self._rendered(cut), limit)

    def _rendered(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        return judge_inputs(
            self._spec, items, self._tokenizer(), fenced=self._options.fence, ask=self._question
        )

    def _tokenizer(self) -> Any:
        if self._spec.remote is not None:
            return None
        return self._context.tokenizer(self._path)

    def _question(self, item: ScoreItem, response: str) -> str:
        options = self._options
        question = options.question
        if not question:
            question = CHECK if options.score_tokens else RATE
        values = {
            "prompt": conversation_text(item.rm_prompt),
            "response": response,
            "question": question_of(question, options.rubric),
            "answer": self._answer_form(),
        }
        return fill(template("judge"), values).rstrip()

    def _answer_form(self) -> str:
        """The required end of the answer; "" with a parser, whose form only the rubric states."""
        if self._parser is not None:
            return ""
        choices = tuple(self._options.score_tokens) or self._sampling.choice
        return answer_form(
            scale=self._options.scale, choices=choices, json_schema=self._sampling.json_schema
        )

    async def _judge(
        self, items: Sequence[ScoreItem], rendered: Sequence[Rendered]
    ) -> list[ScoreResult]:
        if not items:
            return []
        if self._options.score_tokens:
            return await self._judge_tokens(rendered)
        samples = await self._outputs(generate_requests(rendered, self._sampling))
        answers: list[list[_Answer]] = []
        for read, outputs in zip(rendered, samples, strict=True):
            answers.append([_answer(output, read) for output in outputs])
        verdicts = self._read(items, answers)
        results: list[ScoreResult] = []
        for i, read in enumerate(rendered):
            votes = list(zip(answers[i], verdicts[i], strict=True))
            results.append(self._result(votes, read))
        return results

    async def _outputs(self, requests: Sequence[Any]) -> list[list[TextOutput]]:
        """The samples of each request."""
        calls = self._context.calls_to("main" if self._spec.remote is None else "remote")
        deterministic = self._sampling.temperature == 0
        return await calls.submit("generate", requests, deterministic=deterministic)

    async def _judge_tokens(self, rendered: Sequence[Rendered]) -> list[ScoreResult]:
        answers = ScoreTokens(
            self._options.score_tokens, self._tokenizer(), where=f"reward.specs.{self._spec.name}"
        )
        requests: list[Any] = []
        for request in generate_requests(rendered, self._sampling):
            ids = answers.ids_after(request.text)
            requests.append(dataclasses.replace(request, choice_tokens=ids))
        results: list[ScoreResult] = []
        for outputs, read in zip(await self._outputs(requests), rendered, strict=True):
            results.append(_token_result(answers, outputs[0], read))
        return results

    def _read(
        self, items: Sequence[ScoreItem], answers: Sequence[Sequence[_Answer]]
    ) -> list[list[Verdict]]:
        """One verdict per answer.

        An answer that failed, or that was cut inside its thinking, is not passed to the drop-in.
        """
        dropin = self._spec.dropin
        all_verdicts: list[list[Verdict]] = []
        if self._parser is not None or dropin is None or dropin.postprocess is None:
            for item, group in zip(items, answers, strict=True):
                all_verdicts.append([self._own_reading(answer, item) for answer in group])
            return all_verdicts
        readable: list[tuple[ScoreItem, _Answer]] = []
        for item, group in zip(items, answers, strict=True):
            readable += [(item, answer) for answer in group if answer.readable]
        verdicts = iter(self._dropin_reading(dropin, readable))
        for group in answers:
            all_verdicts.append([next(verdicts) if a.readable else Verdict(None) for a in group])
        return all_verdicts

    def _dropin_reading(
        self, dropin: DropIn, readable: Sequence[tuple[ScoreItem, _Answer]]
    ) -> list[Verdict]:
        if not readable:
            return []
        items = [item for item, _ in readable]
        texts = [answer.text for _, answer in readable]
        fences = [answer.fence for _, answer in readable]
        return [
            check_verdict(returned) for returned in postprocess(dropin, texts, items, fences=fences)
        ]

    def _own_reading(self, answer: _Answer, item: ScoreItem) -> Verdict:
        if self._parser is not None:
            if not answer.readable:
                return Verdict(None)
            scale = self._options.scale if self._spec.dropin is None else ()
            return parsed_vote(self._parser, answer.text, scale=scale, response=item.response)
        cut = answer.output.finish_reason == "length"
        return read_vote(
            answer.text,
            scale=self._options.scale,
            choices=self._sampling.choice,
            cut=cut,
            response=item.response,
            prompt=self._prompt_text(item),
        )

    def _prompt_text(self, item: ScoreItem) -> str:
        """The judge's prompt without the response; for a drop-in, whose question is unknown, only
        the row's prompt."""
        prompt = conversation_text(item.rm_prompt)
        if self._spec.dropin is not None:
            return prompt
        options = self._options
        return "\n".join([prompt, question_of(options.question, options.rubric)])

    def _result(self, votes: Sequence[tuple[_Answer, Verdict]], read: Rendered) -> ScoreResult:
        shared = judge_columns([answer.output for answer, _ in votes], read)
        usable: list[Verdict] = []
        unusable: list[Verdict] = []
        failures: list[tuple[Status, str]] = []
        for answer, verdict in votes:
            failure = _answer_failure(answer, verdict)
            if failure is None:
                usable.append(verdict)
            else:
                unusable.append(verdict)
                failures.append(failure)
        extra = dict(next(iter([*usable, *unusable]), Verdict(None)).extra)
        if len(votes) > 1:
            extra["votes"] = [verdict.value for _, verdict in votes]
        if len(usable) < self._options.min_votes:
            status: Status = "provider_error"
            detail = f"the judge wrote {len(votes)} of {self._sampling.n} votes"
            if failures:
                status, detail = failures[0]
            if usable:
                detail = (
                    f"{len(usable)} of {len(votes)} votes could be read and min_votes is"
                    f" {self._options.min_votes}: {detail}"
                )
            return ScoreResult(value=None, status=status, detail=detail, extra=extra, **shared)
        values = [verdict.value for verdict in usable if verdict.value is not None]
        value = combine_votes(values, self._options.votes)
        if self._range is None:
            return ScoreResult(value=value, extra=extra, **shared)
        low, high = self._range
        return ScoreResult(
            value=(value - low) / (high - low), extra={**extra, "on_scale": value}, **shared
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """One sample and the part of its text that may hold a verdict. `cut`: it ended inside its
    thinking, for want of tokens."""

    output: TextOutput
    text: str
    cut: bool
    fence: Fence | None

    @property
    def readable(self) -> bool:
        return not self.output.failure and not self.cut


def _answer(output: TextOutput, read: Rendered) -> _Answer:
    text, left_open = own_words(output, read)
    return _Answer(output, text, left_open and output.finish_reason == "length", read.fence)


def own_words(output: TextOutput, read: Rendered) -> tuple[str, bool]:
    """(the judge's own text without thinking and quotations of the fenced response, whether a
    thinking block was left open)."""
    text = output.text
    if read.fence is not None:
        text = read.fence.clean(text)
    return strip_thinking(text, opened=opens_thinking(read.text))


def _answer_failure(answer: _Answer, verdict: Verdict) -> tuple[Status, str] | None:
    """Why this vote does not count; None when it does."""
    output = answer.output
    if output.failure:
        return output.failure, output.detail
    if answer.cut:
        return (
            "judge_truncated",
            "the judge ran out of tokens inside its thinking block; raise sampling.max_tokens",
        )
    if verdict.problem:
        return "user_error", f"rm_postprocess {verdict.problem}"
    if verdict.value is not None:
        return None
    if is_refusal(answer.text):
        return "judge_refused", f"the judge refused: {answer.text[:120]!r}"
    if output.finish_reason == "length":
        return (
            "judge_truncated",
            "the judge ran out of tokens before a verdict; raise sampling.max_tokens",
        )
    return "unparseable", f"{verdict.reason or 'no verdict'} in {output.text[:120]!r}"


def judge_columns(outputs: Sequence[TextOutput], read: Rendered) -> dict[str, Any]:
    """Columns that every result of a judge has, from all its samples."""
    return {
        "raw_text": "\n---\n".join(output.text for output in outputs),
        "rendered": read.text,
        "tokens_in": max((output.tokens_in for output in outputs), default=0),
        "tokens_out": sum(output.tokens_out for output in outputs),
        "cached": all(output.cached for output in outputs),
    }


def token_sampling(sampling: Sampling) -> Sampling:
    """One greedy, unconstrained token: structured output would move the probabilities that are
    read."""
    return dataclasses.replace(
        sampling, max_tokens=1, temperature=0.0, n=1, stop=(), choice=(), regex="", json_schema=""
    )


def _token_result(answers: ScoreTokens, output: TextOutput, read: Rendered) -> ScoreResult:
    shared = judge_columns([output], read)
    if output.failure:
        return ScoreResult(value=None, status=output.failure, detail=output.detail, **shared)
    scored = answers.score(output.choice_logprobs)
    if scored is None or not math.isfinite(scored[0]):
        detail = f"the engine told no probability of the answers, only {output.choice_logprobs}"
        return ScoreResult(value=None, status="provider_error", detail=detail, **shared)
    return ScoreResult(value=scored[0], extra={"shares": scored[1]}, **shared)


def _token_problems(values: Any) -> list[str]:
    # A configuration file may hold another type than the annotation states.
    if not isinstance(values, Mapping):
        return [
            f"score_tokens={values!r}: give answers with their worth, e.g. {{'Yes': 1, 'No': 0}}"
        ]
    problems: list[str] = []
    for key in values:
        if not isinstance(key, str) or not key.strip():
            problems.append(
                f"score_tokens: {key!r} is no text; quote the answer, as YAML reads a bare Yes as a"
                " truth value"
            )
    for key, value in values.items():
        if not _is_number(value):
            problems.append(f"score_tokens.{key}={value!r}: give a finite number")
    if len(values) == 1:
        problems.append("score_tokens has one answer, whose share is always 1: give at least two")
    return problems


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _range(options: GenerativeReward.Options, spec: RewardSpec) -> tuple[float, float] | None:
    """Lowest and highest verdict, where the score is the verdict's place between them; None where
    it is the verdict itself."""
    if not options.normalize or options.score_tokens or spec.dropin is not None:
        return None
    choices = spec.sampling.choice if spec.sampling is not None else ()
    ends = list(options.scale)
    if numeric(choices):
        ends = [float(choice) for choice in choices]
    if not ends or min(ends) >= max(ends):
        return None
    return min(ends), max(ends)


def _is_scale(scale: Any) -> bool:
    """Whether this is [] or [low, high]."""
    if not isinstance(scale, list | tuple) or len(scale) not in (0, 2):
        return False
    if not all(map(_is_number, scale)):
        return False
    return not scale or scale[0] < scale[1]
