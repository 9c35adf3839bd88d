"""A language model that is asked about responses: question -> texts -> votes.

generative, critique and holistic rubrics   one response in a question
group                                       a pair, or all responses to a prompt
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput
from rmrl.rewards.kinds.judge.asked import Asks, VerdictTree
from rmrl.rewards.kinds.judge.asking import fill, template
from rmrl.rewards.kinds.judge.case import Case, Vote
from rmrl.rewards.kinds.judge.samples import JudgeSample
from rmrl.rewards.kinds.judge.token_scores import ScoreTokens
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.inputs import Inputs, answers_in_parts
from rmrl.rewards.kinds.shared.rendering import (
    Rendered,
    fill_in,
    generate_requests,
    judge_inputs,
    judge_reads,
    reads_all_at_once,
)
from rmrl.rewards.kinds.shared.truncation import Limit, judge_limit, with_cuts
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Sampling, ScoreItem, ScoreResult

ReadText = Callable[[Case, JudgeSample], Vote]
"""The vote in a text that is not for a drop-in."""
ReadTexts = Callable[[Sequence[tuple[Case, JudgeSample]]], Sequence[Vote]]
"""The votes in texts that a drop-in's rm_postprocess reads, in one call."""


class Judge:
    """One model, its sampling, and how its texts are read."""

    def __init__(
        self,
        spec: RewardSpec,
        context: KindContext,
        sampling: Sampling,
        *,
        read: ReadText | None = None,
        read_all: ReadTexts | None = None,
        asks: Asks | None = None,
    ) -> None:
        """`read_all` is used where it is not None. With `asks` no text is read: the model is asked
        for the verdict behind it."""
        self.spec = spec
        self.sampling = sampling
        self._context = context
        self._read = read
        self._read_all = read_all
        self._asks = asks
        if asks is not None and spec.remote is not None:
            raise ConfigError(
                f"{asks.where}: a server does not return the probabilities of chosen tokens; give a"
                " checkpoint with path=<folder or hub id> instead, or read the server's texts with"
                " verdict=parse"
            )
        self._role = "main"
        if spec.remote is not None:
            self._role = "remote"

    @cached_property
    def tokenizer(self) -> Any:
        """The model's. None: a server tokenizes by itself."""
        if self.spec.remote is not None:
            return None
        return self._context.tokenizer(self.spec.engines["main"].path)

    @cached_property
    def _tree(self) -> VerdictTree:
        """The verdicts to ask for, in the model's tokens."""
        assert self._asks is not None
        return self._asks.tree(self.tokenizer)

    @property
    def limit(self) -> Limit | None:
        """Most tokens that an input may have, so that the text and the question find room."""
        sampling = self.sampling
        if self._asks is not None:
            longest = sampling.max_tokens + self._tree.length
            sampling = dataclasses.replace(sampling, max_tokens=longest)
        return judge_limit(self.spec, self.tokenizer, sampling)

    # --- question

    def inputs(
        self, form: str, values: Callable[[ScoreItem], dict[str, str]], *, fenced: bool
    ) -> Inputs:
        """Inputs with one response each. Without an rm_preprocess they are the shipped template
        `form`, filled with the response and the `values` of its row."""
        spec = self.spec
        tokenizer = self.tokenizer

        def question(item: ScoreItem, response: str) -> str:
            return fill(template(form), {**values(item), "response": response}).rstrip()

        return Inputs(
            read=lambda items: judge_reads(
                spec, items, tokenizer, fenced=fenced, question=question
            ),
            tokenized=lambda reads, items: judge_inputs(spec, reads, items, tokenizer),
            at_once=reads_all_at_once(spec),
            limit=self.limit,
        )

    # --- texts

    async def answers(
        self, items: Sequence[ScoreItem], inputs: Inputs, answers: ScoreTokens | None = None
    ) -> tuple[list[Rendered], list[list[TextOutput]]]:
        """Each item's input, and the samples of each input that is not empty. With `answers`
        the samples have their probabilities."""

        async def send(part: list[Rendered]) -> Sequence[list[TextOutput]]:
            reads = [read for read in part if not read.empty]
            requests = generate_requests(reads, self.sampling)
            if answers is not None:
                requests = [
                    dataclasses.replace(request, choice_tokens=answers.ids_after(request.text))
                    for request in requests
                ]
            return await self.send(requests)

        return await answers_in_parts(
            inputs.parts(items),
            send,
            rows=len(items),
            context=self._context,
            role=self._role,
        )

    async def rendered(self, render: Callable[[], list[Case]]) -> list[Case]:
        """The questions that `render` makes, off the event loop."""
        with self._context.preparing(self._role):
            return await self._context.render(render)

    async def send(self, requests: Sequence[GenerateRequest]) -> list[list[TextOutput]]:
        """Each request's samples."""
        if not requests:
            return []
        calls = self._context.calls_to(self._role)
        deterministic = requests[0].sampling.temperature == 0
        return await calls.submit("generate", requests, deterministic=deterministic)

    # --- votes

    async def add_votes(
        self, cases: Sequence[Case], outputs: Sequence[Sequence[TextOutput]]
    ) -> None:
        """Append to each case a vote for each of its samples. One that failed, or that was cut
        inside its thinking, is not read."""
        samples: list[tuple[Case, JudgeSample]] = [
            (case, case.sample(output))
            for case, of_case in zip(cases, outputs, strict=True)
            for output in of_case
        ]
        if self._asks is not None:
            for (case, _), vote in zip(
                samples, await self._asked(samples, self._asks), strict=True
            ):
                case.votes.append(vote)
            return
        readable = [each for each in samples if each[1].readable]
        if self._read_all is None:
            assert self._read is not None
            votes = [self._read(case, sample) for case, sample in readable]
        elif readable:
            votes = self._read_all(readable)
        else:
            votes = ()
        remaining = iter(votes)
        for case, sample in samples:
            case.votes.append(next(remaining) if sample.readable else Vote(sample))

    async def _asked(self, samples: Sequence[tuple[Case, JudgeSample]], asks: Asks) -> list[Vote]:
        """The vote behind each sample. One without scores where the judge cannot be asked."""
        votes = [Vote(sample) for _, sample in samples]
        texts = {place: asks.text(sample) for place, (_, sample) in enumerate(samples)}
        cases = {
            place: (samples[place][0], text) for place, text in texts.items() if text is not None
        }
        requests = await self._context.render(
            lambda: asks.requests(list(cases.values()), self._tree, self.tokenizer)
        )
        outputs = [output for (output,) in await self.send(requests)]
        count = len(self._tree.nodes)
        for number, place in enumerate(cases):
            answers = outputs[number * count : (number + 1) * count]
            votes[place] = asks.vote(votes[place].sample, self._tree, answers)
        return votes

    def results(
        self, rendered: Sequence[Rendered], judged: Sequence[ScoreResult]
    ) -> list[ScoreResult]:
        """The results of all items, those of empty inputs and the columns of cuts included."""
        results = fill_in(rendered, judged)
        left_out = [read.left_out for read in rendered]
        return with_cuts(results, left_out, how=self.spec.overlong, counts=self._context.counts)
