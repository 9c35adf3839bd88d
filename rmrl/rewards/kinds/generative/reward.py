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

from rmrl.config.numbers import is_pair
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import GenerateRequest, Runner, TextOutput
from rmrl.rewards.dropins.dropin import DropIn
from rmrl.rewards.dropins.verdict import Verdict, check_verdict
from rmrl.rewards.judging.parser import Parser, parser_problem
from rmrl.rewards.kinds.judge.asking import (
    answer_form,
    conversation_text,
    fill,
    question_of,
    template,
)
from rmrl.rewards.kinds.judge.ballots import Ballot, Tally, judge_columns, judge_sample
from rmrl.rewards.kinds.judge.meta_votes import (
    Critiques,
    MetaEntries,
    MetaModel,
    keep_problem,
    meta_problems,
)
from rmrl.rewards.kinds.judge.rounds import VotesUntil, sampling_problem, votes_until_problems
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.rewards.kinds.judge.token_scores import ScoreTokens, score_token_problems
from rmrl.rewards.kinds.judge.votes import VOTES, numeric, parsed_vote, read_vote
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.inputs import Inputs, answers_in_parts
from rmrl.rewards.kinds.shared.rendering import (
    Rendered,
    fill_in,
    generate_requests,
    judge_inputs,
    judge_reads,
    postprocess,
    readable,
    reads_all_at_once,
)
from rmrl.rewards.kinds.shared.truncation import judge_limit, with_cuts
from rmrl.rewards.kinds.shared.untrusted import Fence
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult

RATE = "How good is the response?"
CHECK = "Is the response a correct and helpful answer to the prompt?"


class GenerativeReward(Kind):
    """An LLM judge. With sampling.n > 1 the score is computed from the votes that could be read."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        votes: str = "mean"
        """Combination of n votes into one score: mean, median or majority (the most frequent value;
        equally frequent ones are averaged)."""
        min_votes: int = 1
        """Votes that must be readable; with fewer the score is missing."""
        votes_until: dict[str, Any] = field(default_factory=dict)
        """{agree, at_most, within}: votes in rounds until `agree` of them are equal (or no further
        apart than `within`), instead of sampling.n; {}: n at once."""
        meta: dict[str, Any] = field(default_factory=dict)
        """{path, keep}: a scalar model that reads the votes' texts; only the `keep` votes that it
        scores highest count. It may have adapter, engine, label, label_weights and activation."""
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

    roles: ClassVar[Mapping[str, Runner]] = {"main": "generate", "meta": "pooling"}
    further: ClassVar[Mapping[str, type]] = {"meta": MetaEntries}
    labels_of: ClassVar[str] = "meta"
    samples: ClassVar[bool] = True
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        assert spec.sampling is not None
        super().__init__(spec, context)
        self._options: GenerativeReward.Options = spec.options
        self._sampling = spec.sampling
        self._until: VotesUntil | None = None
        if self._options.votes_until:
            self._until = VotesUntil(**self._options.votes_until)
            self._sampling = self._until.sampling(spec.sampling, self._until.agree, 0)
        if self._options.score_tokens:
            self._sampling = token_sampling(spec.sampling)
        self._parser = Parser(self._options.parser, "score") if self._options.parser else None
        self._meta: MetaModel | None = None
        if self._options.meta:
            self._meta = MetaModel(spec, context, keep=self._options.meta["keep"])
        self._tally = Tally(
            votes=self._options.votes,
            min_votes=self._options.min_votes,
            requested=self._sampling.n,
            until=self._until,
            ends=_ends(self._options, spec),
        )
        # With a parser the rubric alone states the form of the answer.
        self._answer_form = ""
        if self._parser is None:
            self._answer_form = answer_form(
                scale=self._options.scale,
                choices=tuple(self._options.score_tokens) or self._sampling.choice,
                json_schema=self._sampling.json_schema,
            )
        self._path = "" if spec.remote is not None else spec.engines["main"].path
        if self._options.score_tokens and spec.remote is not None:
            raise ConfigError(
                f"reward.specs.{spec.name}.score_tokens: a server does not return the"
                " probabilities of chosen tokens; give a checkpoint with path=<folder or hub id>"
                " instead, or ask for a written verdict with sampling.choice=[...]"
            )

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """Problems of single entries, one sentence each."""
        problems = score_token_problems(options.score_tokens, f"{where}.score_tokens")
        problems += votes_until_problems(options.votes_until, f"{where}.votes_until")
        problems += meta_problems(options.meta, f"{where}.meta")
        for key in ("votes_until", "meta"):
            if getattr(options, key) and options.score_tokens:
                problems.append(
                    f"{where}.{key}: with score_tokens nothing is sampled, so there are no votes;"
                    " leave one of them out"
                )
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
        # A configuration file may hold another type than the annotation states.
        scale: Any = options.scale
        is_scale = isinstance(scale, list | tuple) and not scale
        if is_pair(scale):
            is_scale = scale[0] < scale[1]
        if not is_scale:
            problems.append(
                f"{where}.scale={options.scale!r}: give the lowest and the highest verdict, e.g."
                " [0,10], or [] for any number"
            )
        return problems

    @classmethod
    def dropin_problem(cls, dropin: DropIn | None, options: Options, sampling: Sampling) -> str:
        """Why the reward has no question or no way to read the answer, as the end of a sentence; ""
        without a problem."""
        if options.votes_until:
            problem = sampling_problem(options.votes_until, sampling, options.min_votes)
            if problem:
                return problem
        elif not options.score_tokens and options.min_votes > sampling.n:
            return (
                f"needs min_votes={options.min_votes} of sampling.n={sampling.n} votes: raise"
                " sampling.n or lower min_votes"
            )
        votes = sampling.n
        source = "sampling.n"
        if options.votes_until:
            votes = options.votes_until["at_most"]
            source = "votes_until.at_most"
        problem = keep_problem(options.meta, votes, source)
        if problem:
            return problem
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
        answers: ScoreTokens | None = None
        if self._options.score_tokens:
            where = f"reward.specs.{self._spec.name}.score_tokens"
            answers = ScoreTokens(self._options.score_tokens, self._tokenizer(), where=where)

        async def send(part: list[Rendered]) -> Sequence[list[TextOutput]]:
            return await self._outputs([read for read in part if not read.empty], answers)

        questions = self._inputs()
        rendered, all_outputs = await answers_in_parts(
            questions.parts(items),
            send,
            rows=len(items),
            context=self._context,
            role=self._role,
        )
        rows, inputs = readable(items, rendered)
        if not rows:
            judged: list[ScoreResult] = []
        elif answers is not None:
            judged = self._token_results(inputs, all_outputs, answers)
        else:
            samples: list[list[JudgeSample]] = []
            for read, outputs in zip(inputs, all_outputs, strict=True):
                samples.append([judge_sample(output, read) for output in outputs])
            verdicts = self._read(rows, inputs, samples)
            ballots = list(map(Ballot, inputs, samples, verdicts))
            if self._until is not None:
                await self._vote_on(rows, ballots)
            if self._meta is not None:
                critiques: list[Critiques] = [
                    Critiques((row,), ballot.read, ballot.critiques)
                    for row, ballot in zip(rows, ballots, strict=True)
                ]
                choices = await self._meta.choices(
                    critiques,
                    min_votes=self._options.min_votes,
                    ask_again=lambda cases: questions.uncut([case[0] for case in cases]),
                )
                for ballot, choice in zip(ballots, choices, strict=True):
                    ballot.choice = choice
            judged = list(map(self._tally.result, ballots))
        results = fill_in(rendered, judged)
        left_out = [read.left_out for read in rendered]
        return with_cuts(results, left_out, how=self._spec.overlong, counts=self._context.counts)

    async def _vote_on(self, rows: Sequence[ScoreItem], ballots: Sequence[Ballot]) -> None:
        """Append further rounds to the first one's votes, see `votes_until`."""
        until = self._until
        assert until is not None
        asked = [until.agree] * len(rows)
        number = 0
        while True:
            number += 1
            counts: dict[int, int] = {}
            for i, ballot in enumerate(ballots):
                count = until.more(ballot.values, asked[i])
                if count and not ballot.failed:
                    counts[i] = count
            if not counts:
                return
            requests: list[GenerateRequest] = []
            for i, count in counts.items():
                sampling = until.sampling(self._spec.sampling, count, number)
                requests += generate_requests([ballots[i].read], sampling)
            calls = self._context.calls_to(self._role)
            outputs = await calls.submit("generate", requests, deterministic=False)
            further: list[list[JudgeSample]] = []
            for i, of_row in zip(counts, outputs, strict=True):
                further.append([judge_sample(output, ballots[i].read) for output in of_row])
            reads = [ballots[i].read for i in counts]
            verdicts = self._read([rows[i] for i in counts], reads, further)
            for place, i in enumerate(counts):
                ballots[i].samples += further[place]
                ballots[i].verdicts += verdicts[place]
                asked[i] += counts[i]

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The judge's input for each item, not tokenized for a remote judge."""
        return self._inputs().rendered(items)

    def rubric_of(self, item: ScoreItem) -> str:  # noqa: ARG002 (a rubric's differs from row to row)
        """The criteria of the verdict on one item, in words; "" without any."""
        return self._options.rubric

    def _inputs(self) -> Inputs:
        options = self._options
        spec = self._spec
        tokenizer = self._tokenizer()
        task = options.question
        if not task:
            task = CHECK if options.score_tokens else RATE

        def question(item: ScoreItem, response: str) -> str:
            values = {
                "prompt": conversation_text(item.rm_prompt),
                "response": response,
                "question": question_of(task, self.rubric_of(item)),
                "answer": self._answer_form,
            }
            return fill(template("judge"), values).rstrip()

        def read(items: Sequence[ScoreItem]) -> list[tuple[Any, Fence]]:
            return judge_reads(spec, items, tokenizer, fenced=options.fence, question=question)

        return Inputs(
            read=read,
            tokenized=lambda reads, items: judge_inputs(spec, reads, items, tokenizer),
            at_once=reads_all_at_once(spec),
            limit=judge_limit(spec, tokenizer, self._sampling),
        )

    def _tokenizer(self) -> Any:
        if self._spec.remote is not None:
            return None
        return self._context.tokenizer(self._path)

    @property
    def _role(self) -> str:
        return "main" if self._spec.remote is None else "remote"

    async def _outputs(
        self, inputs: Sequence[Rendered], answers: ScoreTokens | None
    ) -> Sequence[list[TextOutput]]:
        """The samples of each input."""
        requests = generate_requests(inputs, self._sampling)
        if answers is not None:
            for i, request in enumerate(requests):
                ids = answers.ids_after(request.text)
                requests[i] = dataclasses.replace(request, choice_tokens=ids)
        if not requests:
            return []
        deterministic = self._sampling.temperature == 0
        calls = self._context.calls_to(self._role)
        return await calls.submit("generate", requests, deterministic=deterministic)

    def _token_results(
        self,
        rendered: Sequence[Rendered],
        all_outputs: Sequence[Sequence[TextOutput]],
        answers: ScoreTokens,
    ) -> list[ScoreResult]:
        results: list[ScoreResult] = []
        for outputs, read in zip(all_outputs, rendered, strict=True):
            output = outputs[0]
            shared = judge_columns([output], read)
            if output.failure:
                results.append(
                    ScoreResult(value=None, status=output.failure, detail=output.detail, **shared)
                )
                continue
            scored = answers.score(output.choice_logprobs)
            if scored is None or not math.isfinite(scored[0]):
                detail = (
                    "the engine returned no probability of the answers, only"
                    f" {output.choice_logprobs}"
                )
                results.append(
                    ScoreResult(value=None, status="provider_error", detail=detail, **shared)
                )
                continue
            score, shares = scored
            results.append(ScoreResult(value=score, extra={"shares": shares}, **shared))
        return results

    def _read(
        self,
        items: Sequence[ScoreItem],
        rendered: Sequence[Rendered],
        samples: Sequence[Sequence[JudgeSample]],
    ) -> list[list[Verdict]]:
        """One verdict per sample.

        A sample that failed, or that was cut inside its thinking, is not passed to the drop-in.
        """
        dropin = self._spec.dropin
        all_verdicts: list[list[Verdict]] = []
        if self._parser is not None or dropin is None or dropin.postprocess is None:
            for item, group in zip(items, samples, strict=True):
                all_verdicts.append([self._own_reading(sample, item) for sample in group])
            return all_verdicts
        texts: list[str] = []
        rows: list[ScoreItem] = []
        fences: list[Fence | None] = []
        for item, read, group in zip(items, rendered, samples, strict=True):
            for sample in group:
                if sample.readable:
                    texts.append(sample.text)
                    rows.append(item)
                    fences.append(read.fence)
        returned: list[Any] = []
        if texts:
            returned = postprocess(dropin, texts, rows, fences=fences)
        verdicts = map(check_verdict, returned)
        for group in samples:
            all_verdicts.append([next(verdicts) if s.readable else Verdict(None) for s in group])
        return all_verdicts

    def _own_reading(self, sample: JudgeSample, item: ScoreItem) -> Verdict:
        options = self._options
        if self._parser is not None:
            if not sample.readable:
                return Verdict(None)
            scale = options.scale if self._spec.dropin is None else ()
            return parsed_vote(self._parser, sample.text, scale=scale, response=item.response)
        prompt = conversation_text(item.rm_prompt)
        if self._spec.dropin is None:
            # The question of a drop-in is unknown.
            prompt = f"{prompt}\n{question_of(options.question, self.rubric_of(item))}"
        return read_vote(
            sample.text,
            scale=options.scale,
            choices=self._sampling.choice,
            cut=sample.output.finish_reason == "length",
            response=item.response,
            prompt=prompt,
        )


def token_sampling(sampling: Sampling) -> Sampling:
    """One greedy, unconstrained token: structured output would move the probabilities that are
    read."""
    return dataclasses.replace(
        sampling, max_tokens=1, temperature=0.0, n=1, stop=(), choice=(), regex="", json_schema=""
    )


def _ends(options: GenerativeReward.Options, spec: RewardSpec) -> tuple[float, float] | None:
    """Lowest and highest verdict, where the score is the verdict's place between them; None where
    it is the verdict itself."""
    if not options.normalize or options.score_tokens or spec.dropin is not None:
        return None
    choices = spec.sampling.choice if spec.sampling is not None else ()
    ends = list(options.scale)
    if numeric(choices):
        ends = list(map(float, choices))
    if not ends or min(ends) >= max(ends):
        return None
    return min(ends), max(ends)
