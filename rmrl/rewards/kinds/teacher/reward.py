"""Kind `teacher`: another language model rates every token that the policy wrote.

This is on-policy distillation (arXiv:2306.13649; K. Lu, "On-Policy Distillation", Thinking Machines
Lab, 2025):

prompt tokens + response tokens -> log p_teacher of each response token -> in training, rewards of
  these tokens: log p_teacher - log p_policy, whose mean over sampled tokens is the negative reverse
  KL divergence (rmrl.trainer.teachers); everywhere, one score: the mean log p_teacher

The reward layer knows nothing of the policy, so its score is the teacher's number alone: the same
in training, offline and over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rmrl.config.schema.fields import choice, not_negative
from rmrl.inference.reward_engine_base import LogprobsOutput, LogprobsRequest, Runner
from rmrl.rewards.dropins.dropin import DropIn
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.inputs import PART_ROWS, answers_in_parts
from rmrl.rewards.kinds.shared.tokenizing import Rendered, tokenize_all
from rmrl.rewards.reads.turns import prompt_turns
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreItem, ScoreResult

PROMPTS = ("policy", "rm_prompt")


@dataclass(frozen=True, slots=True)
class _Read:
    """What the teacher reads for one response."""

    rendered: Rendered
    """Prompt and response; text only where they came as text."""
    start: int
    """Position of the first response token."""


class TeacherReward(Kind):
    """A teacher. It reads a response as it is: it follows no instruction in it, and rates the very
    tokens of the policy."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        clip: float = not_negative(10.0)
        """Largest size of a token's log-ratio, in nats. 0: any."""
        prompt: str = choice("policy", among=PROMPTS)
        """policy: the teacher reads the prompt as the policy did; rm_prompt: it reads the row's
        rm_prompt through its own chat template, which may hold more than the policy knows."""
        to_tokens: bool = True
        """The log-ratios are their tokens' rewards. False: the mean log p_teacher is the
        response's score, like that of any other reward."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "generate"}
    rates_tokens: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        super().__init__(spec, context)
        self._options: TeacherReward.Options = spec.options

    @classmethod
    def dropin_problem(cls, dropin: DropIn | None, options: Options, sampling: Any) -> str:  # noqa: ARG003
        """Why it cannot work with this drop-in."""
        if dropin is None:
            return ""
        return (
            f"rates the policy's own tokens, so rm_preprocess and rm_postprocess of {dropin.path}"
            " have nothing to do: give it another name"
        )

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """The mean log-probability per token of each response, at most 0, and those of its
        tokens."""
        if not items:
            return []
        reads, outputs = await answers_in_parts(
            self._parts(items),
            self._ask,
            rows=len(items),
            context=self._context,
            role="main",
        )
        remaining = iter(outputs)
        results: list[ScoreResult] = []
        for read in reads:
            if read.rendered.problem:
                detail = read.rendered.problem
                results.append(ScoreResult(value=None, status="user_error", detail=detail))
            else:
                results.append(_result(next(remaining), read))
        return results

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """What the teacher reads for each item."""
        return [read.rendered for part in self._parts(items) for read in part]

    async def _ask(self, reads: Sequence[_Read]) -> Sequence[LogprobsOutput]:
        requests: list[LogprobsRequest] = [
            LogprobsRequest(read.rendered.token_ids, read.start)
            for read in reads
            if not read.rendered.problem
        ]
        if not requests:
            return []
        calls = self._context.calls_to()
        return await calls.submit("token_logprobs", requests, deterministic=True)

    def _parts(self, items: Sequence[ScoreItem]) -> Iterator[list[_Read]]:
        for start in range(0, len(items), PART_ROWS):
            some = items[start : start + PART_ROWS]
            yield list(map(_read, some, self._prompts(some), self._responses(some)))

    def _prompts(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The policy's prompt tokens. The teacher's chat template where no policy has read the
        prompt, or where the teacher reads another one."""
        prompts: list[Rendered | None] = []
        texts: list[Any] = []
        tokenizer: Any = None
        for item in items:
            if self._options.prompt == "policy" and len(item.prompt_token_ids):
                prompts.append(Rendered("", tuple(item.prompt_token_ids)))
                continue
            prompts.append(None)
            tokenizer = tokenizer or self._tokenizer()
            turns = list(item.messages)
            if self._options.prompt == "rm_prompt":
                turns = prompt_turns(item.rm_prompt)
            if tokenizer.chat_template:
                texts.append(turns)
            else:
                texts.append("\n".join(turn["content"] for turn in turns))
        where = f"reward '{self._spec.name}'"
        made = iter(tokenize_all(texts, tokenizer, generation_prompt=True, where=where))
        return [next(made) if prompt is None else prompt for prompt in prompts]

    def _responses(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """The policy's tokens. A text is tokenized, and ends with the teacher's end token unless it
        was cut at the token limit."""
        responses: list[Rendered] = []
        for item in items:
            if len(item.token_ids):
                tokens = np.asarray(item.token_ids).tolist()
                responses.append(Rendered("", tuple(tokens)))
                continue
            tokenizer = self._tokenizer()
            try:
                item.response.encode()
            except UnicodeEncodeError as error:
                problem = f"the response has half of a letter, a lone surrogate at {error.start}"
                responses.append(Rendered("", (), problem=problem))
                continue
            ids = list(tokenizer(item.response, add_special_tokens=False)["input_ids"])
            end = tokenizer.eos_token_id
            if item.finish_reason == "stop" and end is not None:
                ids.append(end)
            problem = "" if ids else "the response has no token that could be rated"
            responses.append(Rendered(item.response, tuple(ids), problem=problem))
        return responses

    def _tokenizer(self) -> Any:
        return self._context.tokenizer(self._spec.engines["main"].path)


def _read(item: ScoreItem, prompt: Rendered, response: Rendered) -> _Read:
    problem = response.problem
    if not prompt.token_ids:
        problem = f"the prompt of row '{item.prompt_id}' has no token"
    text = prompt.text + response.text
    ids = (*prompt.token_ids, *response.token_ids)
    return _Read(Rendered(text, ids, problem=problem), len(prompt.token_ids))


def _result(output: LogprobsOutput, read: _Read) -> ScoreResult:
    shared: dict[str, Any] = {
        "rendered": read.rendered.text,
        "tokens_in": output.tokens_in,
        "cached": output.cached,
    }
    if output.failure:
        return ScoreResult(value=None, status=output.failure, detail=output.detail, **shared)
    logprobs = output.values()
    wanted = len(read.rendered.token_ids) - read.start
    if len(logprobs) != wanted or not np.isfinite(logprobs).all():
        finite = int(np.isfinite(logprobs).sum())
        detail = f"the teacher gave {finite} finite log-probabilities for {wanted} tokens"
        return ScoreResult(value=None, status="provider_error", detail=detail, **shared)
    mean = float(logprobs.mean(dtype=np.float64))
    return ScoreResult(value=mean, raw_text=f"{mean:.6g}", token_logprobs=logprobs, **shared)
