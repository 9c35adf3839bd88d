"""Kind `rubric`: a language model judges a response by each of several criteria, by the probability
of the answers to each.

    item -> its criteria -> prompt + response + one criterion at the end, for each -> probabilities
         -> a value for each criterion -> one score

All inputs of a response begin with the same tokens (prompt and response) and end in a short
question, and they stand side by side: an engine with a prefix cache reads the response once.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os.path
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import GenerateRequest, Runner, TextOutput
from rmrl.rewards.dropins.dropin import DropIn
from rmrl.rewards.kinds.generative.reward import GenerativeReward, token_sampling
from rmrl.rewards.kinds.judge.asked import asking_problem
from rmrl.rewards.kinds.judge.asking import fill, template
from rmrl.rewards.kinds.judge.decision_text import END, decision_texts
from rmrl.rewards.kinds.judge.label_mass import label_mass, mass_reason
from rmrl.rewards.kinds.judge.token_scores import ScoreTokens
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.rubric.columns import criterion_columns, criterion_record
from rmrl.rewards.kinds.rubric.combine import COMBINERS
from rmrl.rewards.kinds.rubric.criteria import CriteriaError, Verdict
from rmrl.rewards.kinds.rubric.criterion_inputs import criterion_inputs
from rmrl.rewards.kinds.rubric.holistic import HolisticRubric
from rmrl.rewards.kinds.rubric.row_criteria import (
    HOLISTIC,
    Judged,
    Options,
    RowCriteria,
    option_problems,
)
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.inputs import PART_ROWS, answers_in_parts
from rmrl.rewards.kinds.shared.rendering import Rendered
from rmrl.rewards.kinds.shared.truncation import (
    Cutting,
    fitted,
    item_passages,
    items_rebuilt,
    judge_limit,
    with_cuts,
)
from rmrl.rewards.remote import DECISION_WIRES
from rmrl.rewards.remote.spec import DecisionRequest
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult, Status

Case = tuple[ScoreItem, ...]
_prefixes = itertools.count(1)
_MOST_ANSWERS = 256
"""Answers that are kept with their tokens: each row that a server scores may bring others."""
_PARTS_AT_MOST = 3
"""Parts that wait for answers at a time: one is answered while the next ones are rendered."""


@dataclass(slots=True)
class _Asked:
    """One row with its requests: one for each criterion, or none and a problem."""

    judged: Judged | None = None
    reads: tuple[Rendered, ...] = ()
    answers: list[ScoreTokens] = field(default_factory=list[ScoreTokens])
    left_out: int = 0
    problem: str = ""
    text: str = ""
    """All inputs in one, once they are sent."""

    def take_reads(self) -> tuple[Rendered, ...]:
        """The inputs, of which the text alone stays: those of a batch would fill gigabytes."""
        reads = self.reads
        self.text = self.shown().text
        self.reads = ()
        return reads

    def shown(self) -> Rendered:
        """Its inputs in one, for people: the text that all share, then the rest of each."""
        if not self.reads:
            return Rendered("", (), problem=self.problem)
        texts = [read.text for read in self.reads]
        shared = os.path.commonprefix(texts)  # noqa: RUF071 (of characters)
        parts = [shared]
        for number, text in enumerate(texts, start=1):
            parts.append(f"\n--- {number} of {len(texts)}\n{text[len(shared) :]}")
        text = texts[0] if len(texts) == 1 else "".join(parts)
        return dataclasses.replace(self.reads[0], text=text, left_out=self.left_out)


class RubricReward(Kind):
    """A judge of criteria, each by the probabilities of its answers. Nothing is written or
    parsed. Raises ConfigError where an answer of the configured criteria is not one token."""

    Options: ClassVar[type[Options]] = Options
    roles: ClassVar[Mapping[str, Runner]] = {"main": "generate"}
    samples: ClassVar[bool] = True
    truncates: ClassVar[bool] = True
    asks_questions: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        assert spec.sampling is not None
        super().__init__(spec, context)
        self._options: Options = spec.options
        self._sampling = token_sampling(spec.sampling)
        self._criteria = RowCriteria(spec.options, f"reward.specs.{spec.name}")
        tokenizer = None
        if spec.remote is None:
            tokenizer = context.tokenizer(spec.engines["main"].path)
        score_tokens = partial(
            ScoreTokens,
            tokenizer=tokenizer,
            where=f"reward.specs.{spec.name}.criteria: choices",
        )
        self._answers = lru_cache(_MOST_ANSWERS)(score_tokens)
        if tokenizer is not None:
            # Answers that are no single tokens are found here, before any row is scored.
            for criterion in self._criteria.configured:
                self._answers(criterion.choices).ids_after("")

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> RubricReward | GenerativeReward:
        """The judge of each criterion, or of all at once (`combine: holistic`)."""
        problem = cls.machine_problem(spec) if spec.remote is not None else ""
        if problem:
            raise ConfigError(f"reward.specs.{spec.name}: {problem}")
        if spec.options.combine == HOLISTIC:
            return HolisticRubric(spec, context)
        return cls(spec, context)

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """Problems of the entries, one sentence each."""
        return option_problems(options, where)

    @classmethod
    def dropin_problem(cls, dropin: DropIn | None, options: Options, sampling: Sampling) -> str:
        """Why it takes no drop-in, or which sampling it does not read, as the end of a sentence; ""
        without either."""
        if dropin is None:
            if options.combine == HOLISTIC:
                return asking_problem(options.verdict, sampling, reads=False)
            if sampling.n == 1 and sampling.temperature == 0:
                return ""
            return (
                f"has sampling.n={sampling.n} and sampling.temperature={sampling.temperature:g},"
                f" and combine={options.combine} reads the probabilities of one token: leave both"
                " out, or ask for written verdicts with combine=holistic"
            )
        return (
            f"asks by its criteria alone, and there is a drop-in of its name ({dropin.path}): name"
            " the reward otherwise, or write the criteria into the drop-in of a generative reward"
        )

    @classmethod
    def machine_problem(cls, spec: RewardSpec) -> str:
        """Why a server cannot judge each criterion, or which answers of the configured criteria are
        no single tokens, where the judge's tokenizer is in a folder; "" with holistic."""
        combine = spec.options.combine
        if spec.remote is not None:
            answers = spec.remote.wire in DECISION_WIRES
            if answers and combine == HOLISTIC:
                return (
                    f"combine={HOLISTIC} reads a written verdict, and a server of wire"
                    f" {spec.remote.wire} writes none; use another combine, or wire: openai"
                )
            if not answers and combine != HOLISTIC:
                return (
                    f"combine={combine} judges each criterion by the probabilities of its answers,"
                    " and this server does not return those of chosen tokens; give one with wire:"
                    " decisions or systemone, a checkpoint with path=<folder or hub id>, or ask for"
                    " one written verdict with combine=holistic"
                )
            return ""
        if combine == HOLISTIC:
            return ""
        path = spec.engines["main"].path
        where = f"reward.specs.{spec.name}"
        criteria = RowCriteria(spec.options, where).configured
        if not criteria or not Path(path).is_dir():
            return ""
        from rmrl.tokenizer import load_tokenizer  # here: it imports transformers

        try:
            tokenizer = load_tokenizer(path, trust_remote_code=False)
        except ConfigError:
            return ""  # it may need code of its own; the scorer loads it with that, or says why not
        try:
            for choices in {criterion.choices for criterion in criteria}:
                where_choices = f"{where}.criteria: choices"
                ScoreTokens(choices, tokenizer, where=where_choices).ids_after("")
        except ConfigError as error:
            return " ".join(error.problems)
        return ""

    @classmethod
    def file_content(cls, options: Options) -> str:
        """The criteria of the file that `criteria` names, "" where it names none."""
        if not isinstance(options.criteria, str):
            return ""
        return repr(RowCriteria(options, "rubric").configured)

    @classmethod
    def missing_references(cls, spec: RewardSpec, items: Sequence[ScoreItem]) -> list[str]:
        """Why each row has no criteria, "" where it has."""
        criteria = RowCriteria(spec.options, f"reward.specs.{spec.name}")
        return [criteria.problem(item) for item in items]

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One result per item. A criterion without a verdict is its row's status."""
        if not items:
            return []
        if self._spec.remote is not None:
            return await self._score_on_server(items)

        async def send(part: list[_Asked]) -> Sequence[list[TextOutput]]:
            requests: list[GenerateRequest] = []
            for asked in part:
                prefix = next(_prefixes)
                for read, answers in zip(asked.take_reads(), asked.answers, strict=True):
                    request = GenerateRequest(
                        token_ids=read.token_ids,
                        sampling=self._sampling,
                        text=read.text,
                        messages=read.messages,
                        choice_tokens=answers.ids_after(read.text),
                        prefix=prefix,
                    )
                    requests.append(request)
            if not requests:
                return []
            calls = self._context.calls_to("main")
            return await calls.submit("generate", requests, deterministic=True)

        rows, all_outputs = await answers_in_parts(
            self._parts(items),
            send,
            rows=len(items),
            context=self._context,
            role="main",
            at_most=_PARTS_AT_MOST,
        )
        outputs = iter(all_outputs)
        results: list[ScoreResult] = []
        for asked in rows:
            own = [next(outputs)[0] for _ in asked.answers]
            results.append(self._result(asked, own))
        left_out = [asked.left_out for asked in rows]
        return with_cuts(results, left_out, how=self._spec.overlong, counts=self._context.counts)

    async def _score_on_server(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """A post for each row that has criteria."""
        rows = self._questions(items)
        requests = [request for _, request in rows if request is not None]
        calls = self._context.calls_to("remote")
        outputs = iter(await calls.submit("decide", requests, deterministic=True))
        return [
            self._result(row, [] if request is None else next(outputs)) for row, request in rows
        ]

    def _questions(self, items: Sequence[ScoreItem]) -> list[tuple[_Asked, DecisionRequest | None]]:
        """The rows with their questions for a server. None: a row without criteria."""
        rows: list[tuple[_Asked, DecisionRequest | None]] = []
        states = decision_texts(items, fenced=self._options.fence)
        _, tail = template("rubric").split(END)
        for item, state in zip(items, states, strict=True):
            row = _Asked()
            try:
                row.judged = self._criteria.of(item)
            except CriteriaError as error:
                row.problem = str(error)
                rows.append((row, None))
                continue
            questions: list[tuple[str, tuple[str, ...]]] = []
            for criterion in row.judged.criteria:
                question = fill(tail, {"criterion": criterion.text, "answer": ""}).strip()
                questions.append((question, tuple(text for text, _ in criterion.choices)))
                row.answers.append(self._answers(criterion.choices))
            row.text = "\n--- ".join([state, *(text for text, _ in questions)])
            rows.append((row, DecisionRequest(state, tuple(questions))))
        return rows

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The inputs of each item in one: the text that they share, then the rest of each."""
        rendered: list[Rendered] = []
        if self._spec.remote is not None:
            for row, _ in self._questions(items):
                rendered.append(Rendered(row.text, (), tokenized=False, problem=row.problem))
            return rendered
        for part in self._parts(items):
            rendered += [asked.shown() for asked in part]
        return rendered

    def _parts(self, items: Sequence[ScoreItem]) -> Iterator[list[_Asked]]:
        """The rows with their inputs, PART_ROWS at a time."""
        tokenizer = self._context.tokenizer(self._spec.engines["main"].path)
        limit = judge_limit(self._spec, tokenizer, self._sampling)
        for start in range(0, len(items), PART_ROWS):
            rows: list[_Asked] = []
            judging: list[tuple[Judged, _Asked]] = []
            cases: list[Case] = []
            for item in items[start : start + PART_ROWS]:
                asked = _Asked()
                rows.append(asked)
                try:
                    judged = self._criteria.of(item)
                except CriteriaError as error:
                    asked.problem = str(error)
                    continue
                asked.judged = judged
                judging.append((judged, asked))
                cases.append((item,))

            def render(
                positions: Sequence[int],
                cut: Sequence[Case],
                judging: Sequence[tuple[Judged, _Asked]] = judging,
            ) -> list[tuple[Rendered, ...]]:
                return criterion_inputs(
                    [case[0] for case in cut],
                    [judging[position][0].criteria for position in positions],
                    tokenizer,
                    fenced=self._options.fence,
                    where=f"reward '{self._spec.name}'",
                )

            cutting = Cutting[Case, tuple[Rendered, ...]](
                passages=item_passages,
                rebuilt=items_rebuilt,
                render=render,
                length=lambda reads: max(len(read.token_ids) for read in reads),
            )
            inputs = fitted(cases, cutting, limit)
            for (judged, asked), (reads, left_out) in zip(judging, inputs, strict=True):
                asked.left_out = left_out
                self._choose_tokens(asked, judged, reads)
            yield rows

    def _choose_tokens(self, asked: _Asked, judged: Judged, reads: tuple[Rendered, ...]) -> None:
        """Set the inputs of a row and the tokens of the answers to each. A problem where an answer
        is not one token."""
        answers: list[ScoreTokens] = []
        for number, criterion, read in zip(judged.numbers, judged.criteria, reads, strict=True):
            scores = self._answers(criterion.choices)
            try:
                scores.ids_after(read.text)
            except ConfigError as error:
                asked.problem = f"{criterion.shown(number)}: {' '.join(error.problems)}"
                return
            answers.append(scores)
        asked.reads = reads
        asked.answers = answers

    def _result(self, asked: _Asked, outputs: Sequence[TextOutput]) -> ScoreResult:
        """The score of a row from each answer's first token."""
        if asked.problem or asked.judged is None:
            return ScoreResult(value=None, status="user_error", detail=asked.problem)
        options = self._options
        shared: dict[str, Any] = {
            "rendered": asked.text,
            "tokens_in": sum(output.tokens_in for output in outputs),
            "tokens_out": sum(output.tokens_out for output in outputs),
            "cached": all(output.cached for output in outputs),
        }
        verdicts: list[Verdict] = []
        for number, criterion, answers, output in zip(
            asked.judged.numbers, asked.judged.criteria, asked.answers, outputs, strict=True
        ):
            logprobs = output.choice_logprobs
            scored = None if output.failure else answers.score(logprobs)
            mass = label_mass(logprobs)
            status: Status = "unparseable"
            detail = mass_reason(mass, options.min_label_mass)
            if scored is None or not math.isfinite(scored[0]):
                status = output.failure or "provider_error"
                detail = output.detail or f"the engine returned no probability, only {logprobs}"
            if scored is None or detail:
                return ScoreResult(
                    value=None,
                    status=status,
                    detail=f"{criterion.shown(number)}: {detail}",
                    extra={"criteria": list(map(criterion_record, verdicts))},
                    **shared,
                )
            value, shares = scored
            if options.hard:
                # of equally likely ones the first
                value = dict(criterion.choices)[max(shares, key=shares.__getitem__)]
            passed = criterion.passes(value, options.pass_at)
            verdicts.append(
                Verdict(
                    number=number,
                    criterion=criterion,
                    value=value,
                    passed=passed,
                    shares=shares,
                    mass=mass,
                )
            )
        extra: dict[str, Any] = criterion_columns(
            verdicts, configured=len(self._criteria.configured), chosen=options.columns
        )
        extra["label_mass"] = min(verdict.mass for verdict in verdicts)
        extra["passed"] = sum(verdict.passed for verdict in verdicts) / len(verdicts)
        extra["criteria"] = list(map(criterion_record, verdicts))
        score, detail = self._combined(verdicts)
        if options.dropout:
            total = asked.judged.total
            self._context.counts.add("criteria_dropped", total - len(verdicts), total)
        return ScoreResult(value=score, detail=detail, extra=extra, **shared)

    def _combined(self, verdicts: Sequence[Verdict]) -> tuple[float, str]:
        """The score, and a remark on must-have criteria that failed."""
        options = self._options
        score = COMBINERS[options.combine](verdicts)
        if options.combine == "weighted_mean" and options.clip:
            score = max(score, 0.0)
        required = [verdict for verdict in verdicts if verdict.criterion.must_have]
        failed: list[str] = [
            f"{verdict.criterion.shown(verdict.number)} has {verdict.value:.3g}"
            for verdict in required
            if not verdict.passed
        ]
        if required:
            self._context.counts.add("must_have_failed", bool(failed), 1)
        if not failed:
            return score, ""
        return min(score, 0.0), f"a must-have failed: {'; '.join(failed)}"
