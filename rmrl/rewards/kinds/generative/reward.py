"""Kind `generative`: a language model reads the response and writes a verdict.

    items -> rm_preprocess (or the shipped template) -> judge -> own words, thinking stripped ->
      rm_postprocess (or the last verdict)

With `score_tokens` nothing is written nor read: the score is how likely the judge is to begin each
answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, ClassVar

from rmrl.config.schema.fields import at_least, choice, share
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import GenerateRequest, Runner
from rmrl.rewards.dropins.dropin import DropIn
from rmrl.rewards.dropins.verdict import check_verdict
from rmrl.rewards.judging.parser import Parser, parser_problem
from rmrl.rewards.kinds.generative.token_results import ServerAnswers, token_result
from rmrl.rewards.kinds.judge.asked import (
    VERDICTS,
    asking_problem,
    asks_for_level,
    verdict_problems,
)
from rmrl.rewards.kinds.judge.asking import answer_form, conversation_text, question_of
from rmrl.rewards.kinds.judge.case import Case, Vote
from rmrl.rewards.kinds.judge.judge import Judge
from rmrl.rewards.kinds.judge.label_mass import mass_problems
from rmrl.rewards.kinds.judge.meta_votes import (
    MetaEntries,
    MetaModel,
    keep_problem,
    meta_problems,
)
from rmrl.rewards.kinds.judge.rounds import VotesUntil, sampling_problem, votes_until_problems
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.rewards.kinds.judge.token_scores import ScoreTokens, score_token_problems
from rmrl.rewards.kinds.judge.votes import (
    VOTES,
    combine_votes,
    numeric,
    parsed_vote,
    read_vote,
)
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.inputs import Inputs
from rmrl.rewards.kinds.shared.rendering import (
    Rendered,
    generate_requests,
    postprocess,
    readable,
)
from rmrl.rewards.kinds.shared.truncation import TOKENS
from rmrl.rewards.remote import DECISION_WIRES
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult

RATE = "How good is the response?"
CHECK = "Is the response a correct and helpful answer to the prompt?"


class GenerativeReward(Kind):
    """An LLM judge. With sampling.n > 1 the score is computed from the votes that could be read."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        votes: str = choice("mean", among=VOTES)
        """Combination of n votes into one score: mean, median or majority (the most frequent value;
        equally frequent ones are averaged)."""
        min_votes: int = at_least(1, least=1)
        """Votes that must be readable. With fewer the score is missing."""
        votes_until: dict[str, Any] = field(default_factory=dict)
        """{agree, at_most, within}: votes in rounds until `agree` of them are equal (or no further
        apart than `within`), instead of sampling.n. {}: n at once."""
        meta: dict[str, Any] = field(default_factory=dict)
        """{path, keep}: a scalar model that reads the votes' texts. Only the `keep` votes that it
        scores highest count. It may have adapter, engine, label, label_weights and activation."""
        score_tokens: dict[str, float] = field(default_factory=dict)
        """Answers and their values, e.g. {"Yes": 1, "No": 0}: the score is the expected value of
        the judge's first token."""
        min_label_mass: float = share(0.0)
        """score_tokens and verdict=ask or expect: no verdict where all answers together are less
        likely than this as the judge's next token."""
        question: str = ""
        """The question without a drop-in. empty: a question on quality or, with `score_tokens`, on
        correctness."""
        rubric: str = ""
        """Criteria of the verdict, in words, without a drop-in."""
        scale: Sequence[float] = (0.0, 10.0)
        """Lowest and highest verdict of a judge without a drop-in. Others do not count. []: any
        number."""
        normalize: bool = True
        """Without a drop-in: the score is the verdict's place from 0 to 1 on `scale`, or between
        the lowest and the highest of a numeric `sampling.choice`. The verdict itself is column
        `on_scale`. False: the score is the verdict itself."""
        fence: bool = True
        """Responses stand between markers that they cannot contain."""
        verdict: str = choice("parse", among=VERDICTS)
        """parse: the verdict is read from the judge's text. ask: the judge is asked for a level on
        `scale` behind its text, and the likeliest one counts. expect: asked in the same way, the
        levels' mean by their probabilities counts."""
        parser: str = ""
        """Regular expression that reads the verdict, instead of rm_postprocess: its group
        (?P<score>...) is the verdict, other named groups are columns."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "generate", "meta": "pooling"}
    further: ClassVar[Mapping[str, type]] = {"meta": MetaEntries}
    labels_of: ClassVar[str] = "meta"
    samples: ClassVar[bool] = True
    truncates: ClassVar[bool] = True
    asks_questions: ClassVar[bool] = True

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
        self._ends = _ends(self._options, spec)
        read_all = None
        if self._parser is None and spec.dropin is not None and spec.dropin.postprocess is not None:
            read_all = self._read_all
        self._judge = Judge(
            spec,
            context,
            self._sampling,
            read=self._read,
            read_all=read_all,
            asks=asks_for_level(
                self._options.verdict,
                self._options.scale,
                spec.name,
                least_mass=self._options.min_label_mass,
            ),
        )
        # With a parser the rubric alone states the form of the answer.
        self._server: ServerAnswers | None = None
        if spec.remote is not None and spec.remote.wire in DECISION_WIRES:
            options = self._options
            self._server = ServerAnswers(
                options.score_tokens,
                context,
                question=options.question or CHECK,
                fenced=options.fence,
                least_mass=options.min_label_mass,
            )
        self._answer_form = ""
        if self._parser is None:
            self._answer_form = answer_form(
                scale=self._options.scale,
                choices=tuple(self._options.score_tokens) or self._sampling.choice,
                json_schema=self._sampling.json_schema,
            )

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> GenerativeReward:
        """The judge. Raises ConfigError for a server that does not answer as the entries need."""
        problem = cls.machine_problem(spec)
        if problem:
            raise ConfigError(f"reward.specs.{spec.name}: {problem}")
        return cls(spec, context)

    @classmethod
    def machine_problem(cls, spec: RewardSpec) -> str:
        """Why the server does not answer as the entries need, "" where it does."""
        if spec.remote is None:
            return ""
        asks = bool(spec.options.score_tokens)
        answers = spec.remote.wire in DECISION_WIRES
        if asks and not answers:
            return (
                "score_tokens reads the probabilities of chosen tokens, and this server does not"
                " return them; give one with wire: decisions or systemone, a checkpoint with"
                " path=<folder or hub id>, or ask for a written verdict with sampling.choice=[...]"
            )
        if answers and not asks:
            return (
                f"a server of wire {spec.remote.wire} answers questions and writes no text; give"
                " the answers with their values, e.g. score_tokens={Yes: 1, No: 0}, or wire: openai"
            )
        if answers and spec.dropin is not None:
            return (
                f"a server of wire {spec.remote.wire} is asked the reward's own question, and there"
                f" is a drop-in of its name ({spec.dropin.path}); name the reward otherwise"
            )
        return ""

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """Problems of single entries, one sentence each."""
        problems = score_token_problems(options.score_tokens, f"{where}.score_tokens")
        problems += votes_until_problems(options.votes_until, f"{where}.votes_until")
        problems += meta_problems(options.meta, f"{where}.meta")
        problems += mass_problems(
            options.min_label_mass,
            where,
            read=bool(options.score_tokens) or options.verdict != "parse",
        )
        for key in ("votes_until", "meta"):
            if getattr(options, key) and options.score_tokens:
                problems.append(
                    f"{where}.{key}: with score_tokens nothing is sampled, so there are no votes;"
                    " leave one of them out"
                )
        problem = parser_problem(options.parser, "score")
        if problem:
            problems.append(f"{where}.parser={options.parser!r}: {problem}")
        if options.parser and options.score_tokens:
            problems.append(
                f"{where}.parser: with score_tokens nothing is written that it could read; leave"
                " one of them out"
            )
        scale = options.scale
        if scale and not (len(scale) == 2 and scale[0] < scale[1]):
            problems.append(
                f"{where}.scale={options.scale!r}: give the lowest and the highest verdict, e.g."
                " [0,10], or [] for any number"
            )
        else:
            problems += verdict_problems(options.verdict, scale, where)
        return problems

    @classmethod
    def dropin_problem(cls, dropin: DropIn | None, options: Options, sampling: Sampling) -> str:
        """Why the reward has no question or no way to read the answer, as the end of a sentence; ""
        without a problem."""
        problem = asking_problem(
            options.verdict,
            sampling,
            reads=dropin is not None and dropin.postprocess is not None,
            entries=[name for name in ("parser", "score_tokens") if getattr(options, name)],
        )
        if problem:
            return problem
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
        for unusable answers. A row the drop-in raises on has a `user_error`."""
        if not items:
            return []
        if self._server is not None:
            return await self._server.score(items, list(map(self.rubric_of, items)))
        options = self._options
        answers: ScoreTokens | None = None
        if options.score_tokens:
            where = f"reward.specs.{self._spec.name}.score_tokens"
            answers = ScoreTokens(options.score_tokens, self._judge.tokenizer, where=where)
        inputs = self._inputs()
        rendered, outputs = await self._judge.answers(items, inputs, answers)
        cases = list(starmap(Case.of, zip(*readable(items, rendered), strict=True)))
        if answers is not None:
            judged: list[ScoreResult] = [
                token_result(case.read, samples[0], answers, options.min_label_mass)
                for case, samples in zip(cases, outputs, strict=True)
            ]
            return self._judge.results(rendered, judged)
        await self._judge.add_votes(cases, outputs)
        if self._until is not None:
            await self._vote_on(cases, self._until)
        if self._meta is not None:
            await self._meta.choose(
                cases,
                min_votes=options.min_votes,
                ask_again=lambda others: inputs.uncut([items[0] for items in others]),
            )
        return self._judge.results(rendered, list(map(self._result, cases)))

    async def _vote_on(self, cases: Sequence[Case], until: VotesUntil) -> None:
        """Append further rounds to the first one's votes, see `votes_until`."""
        number = 0
        # A server may write fewer votes than it is asked for.
        requested = [until.agree] * len(cases)
        while True:
            number += 1
            disputed: list[Case] = []
            requests: list[GenerateRequest] = []
            for i, case in enumerate(cases):
                count = until.more(case.values, requested[i])
                if count and not case.failed:
                    requested[i] += count
                    disputed.append(case)
                    sampling = until.sampling(self._spec.sampling, count, number)
                    requests += generate_requests([case.read], sampling)
            if not disputed:
                return
            await self._judge.add_votes(disputed, await self._judge.send(requests))

    def _result(self, case: Case) -> ScoreResult:
        """One response's score, or why it has none."""
        shared = case.shared()
        votes: dict[str, Any] = {}
        if len(case.votes) > 1:
            votes["votes"] = case.values
        if self._until is not None:
            votes["votes_asked"] = len(case.votes)
            votes["agreed"] = self._until.agreed(case.values)
        extra = case.columns(votes)
        failure = case.failure(min_votes=self._options.min_votes, requested=self._sampling.n)
        if failure is not None:
            status, detail = failure
            return ScoreResult(value=None, status=status, detail=detail, extra=extra, **shared)
        detail = ""
        tokens, sentence = case.cut_by_choice()
        if tokens > extra.get(TOKENS, 0):
            extra[TOKENS] = tokens
            detail = sentence
        value = self._combined(case, case.counted)
        if self._ends is not None:
            extra["on_scale"] = value
        score = self._placed(value)
        if case.choice is not None:
            extra["meta_shift"] = score - self._placed(self._combined(case, case.usable))
        return ScoreResult(value=score, detail=detail, extra=extra, **shared)

    def _combined(self, case: Case, places: Sequence[int]) -> float:
        """One verdict of the votes at `places`."""
        (values,) = case.scores(places)
        return combine_votes(values, self._options.votes)

    def _placed(self, verdict: float) -> float:
        """A verdict's score."""
        if self._ends is None:
            return verdict
        low, high = self._ends
        return (verdict - low) / (high - low)

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The judge's input for each item, not tokenized for a remote judge."""
        if self._server is not None:
            return self._server.render(items, list(map(self.rubric_of, items)))
        return self._inputs().rendered(items)

    def rubric_of(self, item: ScoreItem) -> str:  # noqa: ARG002 (a rubric's differs from row to row)
        """The criteria of the verdict on one item, in words; "" without any."""
        return self._options.rubric

    def _inputs(self) -> Inputs:
        options = self._options
        task = options.question
        if not task:
            task = CHECK if options.score_tokens else RATE

        def values(item: ScoreItem) -> dict[str, str]:
            return {
                "prompt": conversation_text(item.rm_prompt),
                "question": question_of(task, self.rubric_of(item)),
                "answer": self._answer_form,
            }

        return self._judge.inputs("judge", values, fenced=options.fence)

    def _read_all(self, texts: Sequence[tuple[Case, JudgeSample]]) -> list[Vote]:
        """The votes that a drop-in's rm_postprocess reads."""
        assert self._spec.dropin is not None
        returned = postprocess(
            self._spec.dropin,
            [sample.text for _, sample in texts],
            [case.items[0] for case, _ in texts],
            fences=[case.read.fence for case, _ in texts],
        )
        return [
            Vote.of(sample, check_verdict(value))
            for (_, sample), value in zip(texts, returned, strict=True)
        ]

    def _read(self, case: Case, sample: JudgeSample) -> Vote:
        """The vote that a parser or the shipped reader reads."""
        options = self._options
        (item,) = case.items
        if self._parser is not None:
            scale = options.scale if self._spec.dropin is None else ()
            verdict = parsed_vote(self._parser, sample.text, scale=scale, response=item.response)
            return Vote.of(sample, verdict)
        prompt = conversation_text(item.rm_prompt)
        if self._spec.dropin is None:
            # The question of a drop-in is unknown.
            prompt = f"{prompt}\n{question_of(options.question, self.rubric_of(item))}"
        verdict = read_vote(
            sample.text,
            scale=options.scale,
            choices=self._sampling.choice,
            cut=sample.output.finish_reason == "length",
            response=item.response,
            prompt=prompt,
        )
        return Vote.of(sample, verdict)


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
