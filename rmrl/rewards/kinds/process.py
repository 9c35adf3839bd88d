"""Kind `process`: a process reward model scores the steps of a response; the scores reach the
policy's tokens where the steps end.

response -> steps -> prompt + steps through the chat template -> logits at the last token of each
  step -> step scores -> one score
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from rmrl.errors import RewardError
from rmrl.inference.scoring_base import PoolingRequest, Runner, TokenOutput
from rmrl.rewards.judging.steps import cut_steps, locate_steps, step_ends, tokens_of_parts
from rmrl.rewards.judging.untrusted import neutralised_with_map
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.process_frame import Frame, frame_of, plain_frame
from rmrl.rewards.kinds.rendering import (
    Rendered,
    nothing_to_read,
    postprocess,
    preprocess,
    preprocess_of,
    without_verdict,
)
from rmrl.rewards.kinds.row_errors import Origin
from rmrl.rewards.kinds.truncation import Limit, kept_numbers, pooling_limit, with_cuts
from rmrl.rewards.rules.verdict import RowError, check_verdict
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Message, ScoreItem, ScoreResult, Step

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": lambda values: math.fsum(values) / len(values),
    "last": lambda values: values[-1],
    "product": math.prod,
    "sum": math.fsum,
}
ACTIVATIONS = ("auto", "sigmoid", "none")


@dataclass(frozen=True, slots=True)
class Parts:
    """The steps of one response as the model reads them, and where each ends in the response itself
    (None: not to be found there)."""

    texts: tuple[str, ...]
    ends: tuple[int, ...] | None
    prompt: Any = None
    """A drop-in's own prompt; None: the item's rm_prompt."""
    whole: int = 0
    """Steps that there were before some were left out; 0: these are all."""

    def only(self, numbers: Sequence[int]) -> Parts:
        """The steps of these numbers, counted from 0, and where they end in the whole response."""
        ends = None if self.ends is None else tuple(self.ends[k] for k in numbers)
        return Parts(
            tuple(self.texts[k] for k in numbers), ends, self.prompt, whole=len(self.texts)
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """One input: what the model reads and the tokens at which its logits are step scores."""

    rendered: Rendered
    positions: tuple[int, ...]
    parts: Parts


class ProcessReward:
    """A process reward model. Responses are not fenced, as the model obeys nothing; their special
    tokens are broken all the same."""

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Options:
        """Entries that only this kind has."""

        separator: str = "\n\n"
        """What ends a step; it belongs to the step that it ends. Empty: the whole response is one
        step."""
        step_token: str = ""
        """Text behind each step where the model says what it thinks of it, e.g. <extra_0>; empty:
        the last token of the step itself."""
        joint: str = ""
        """With `step_token`: what stands between it and the next step, in the place of the
        separator."""
        aggregate: str = "min"
        """How the step scores become the response's score: min, mean, last, product or sum."""
        positive_label: int = 1
        """Of a head with several labels: the one whose probability is the score."""
        activation: str = "auto"
        """auto (softmax over several labels, sigmoid of a single one), sigmoid (of the label's own
        logit) or none (the raw logit)."""
        to_tokens: bool = True
        """Step scores reach the advantages as rewards of tokens; False: only the response's one
        score counts."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "token_pooling"}
    samples: ClassVar[bool] = False
    whole_groups: ClassVar[bool] = False
    scores_steps: ClassVar[bool] = True
    truncates: ClassVar[bool] = True

    def __init__(self, spec: RewardSpec, context: KindContext) -> None:
        self._spec, self._context = spec, context
        self._options: ProcessReward.Options = spec.options or self.Options()
        self._dropin = (
            spec.dropin if spec.dropin is not None and spec.dropin.preprocess is not None else None
        )

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> ProcessReward:
        return cls(spec, context)

    @classmethod
    def check_options(cls, options: Options, where: str) -> list[str]:
        """What is wrong with the entries by themselves."""
        problems = []
        if options.aggregate not in AGGREGATES:
            problems.append(f"{where}.aggregate={options.aggregate}: give {', '.join(AGGREGATES)}")
        if options.activation not in ACTIVATIONS:
            problems.append(
                f"{where}.activation={options.activation}: give {', '.join(ACTIVATIONS)}"
            )
        if options.positive_label < 0:
            problems.append(
                f"{where}.positive_label={options.positive_label}: give the number of a label,"
                " from 0"
            )
        if options.joint and not options.step_token:
            problems.append(
                f"{where}.joint={options.joint!r}: it stands behind step_token, which is empty;"
                " give both or neither"
            )
        return problems

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One score per item, with those of its steps. Raises RewardFunctionError for a misfit
        drop-in, RewardError for a misfit head."""
        reads = self._reads(items)
        full = [read for read in reads if not read.rendered.empty]
        requests = [
            PoolingRequest(token_ids=read.rendered.token_ids, positions=read.positions)
            for read in full
        ]
        outputs = (
            await self._context.calls_to().submit("token_logits", requests, deterministic=True)
            if requests
            else []
        )
        found = iter([self._values(output) for output in outputs])
        values = [None if read.rendered.empty else next(found) for read in reads]
        verdicts, told = self._verdicts(items, values), iter(outputs)
        results = [
            (
                nothing_to_read(read.rendered)
                if read.rendered.empty
                else self._result(next(told), steps or [], read, verdict)
            )
            for read, steps, verdict in zip(reads, values, verdicts, strict=True)
        ]
        left_out = [read.rendered.left_out for read in reads]
        return with_cuts(results, left_out, how=self._spec.overlong, counts=self._context.counts)

    def render(self, items: Sequence[ScoreItem]) -> list[Rendered]:
        """What the model reads, one input per item."""
        return [read.rendered for read in self._reads(items)]

    # --- what is read

    def _reads(self, items: Sequence[ScoreItem]) -> list[_Read]:
        tokenizer = self._context.tokenizer(self._spec.engines["main"].path)
        all_parts = (
            self._dropin_parts(items, tokenizer)
            if self._dropin is not None
            else [self._own_parts(i, tokenizer) for i in items]
        )
        limit = pooling_limit(self._spec, tokenizer)
        reads: list[_Read] = []
        for item, parts in zip(items, all_parts, strict=True):
            if isinstance(parts, RowError):
                reads.append(_unread(parts))
                continue
            whole = self._read(item, parts, tokenizer)
            reads.append(whole if limit is None else self._fitted(item, whole, limit))
        return reads

    def _fitted(self, item: ScoreItem, whole: _Read, limit: Limit) -> _Read:
        """The read with as many whole steps as fit; as it was where not even one does. A step that
        is left out has no score."""
        full = len(whole.rendered.token_ids)
        fits, too_many = 0, len(whole.parts.texts)
        best = whole
        while full > limit.tokens and too_many - fits > 1:
            count = (fits + too_many) // 2
            parts = whole.parts.only(kept_numbers(len(whole.parts.texts), count, how=limit.how))
            read = self._read(item, parts, limit.tokenizer)
            if len(read.rendered.token_ids) <= limit.tokens:
                fits, best = count, read
            else:
                too_many = count
        if best is whole:
            return whole
        rendered = dataclasses.replace(best.rendered, left_out=full - len(best.rendered.token_ids))
        return dataclasses.replace(best, rendered=rendered)

    def _own_parts(self, item: ScoreItem, tokenizer: Any) -> Parts:
        """Cut where the response itself has its separators; the text between is the one without
        special tokens."""
        ends = step_ends(cut_steps(item.response, self._options.separator))
        text, places = neutralised_with_map(item.response, tokenizer)
        cuts = [0, *(bisect.bisect_left(places, end) for end in ends[:-1]), len(text)]
        return Parts(tuple(text[a:b] for a, b in pairwise(cuts)), tuple(ends))

    def _dropin_parts(self, items: Sequence[ScoreItem], tokenizer: Any) -> list[Parts | RowError]:
        assert self._dropin is not None
        origin = preprocess_of(self._dropin)
        returned = preprocess(self._dropin, items, tokenizer)
        return [
            each if isinstance(each, RowError) else _parts_of(each, item, tokenizer, origin=origin)
            for each, item in zip(returned, items, strict=True)
        ]

    def _read(self, item: ScoreItem, parts: Parts, tokenizer: Any) -> _Read:
        prompt = item.rm_prompt if parts.prompt is None else parts.prompt
        turns: list[Message] = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        )
        where = f"reward '{self._spec.name}'"
        frame = (
            frame_of(turns, tokenizer, where=where)
            if tokenizer.chat_template
            else plain_frame(turns, tokenizer)
        )
        pieces = self._tagged(parts.texts, frame)
        ids, last = tokens_of_parts(
            [frame.before, *pieces, frame.after], tokenizer, special=frame.special
        )
        text = "".join([frame.before, *pieces, frame.after])
        positions = tuple(last[1:-1:2]) if self._options.step_token else tuple(last[1:-1])
        ids = ids if min(positions, default=-1) >= 0 else []
        return _Read(Rendered(text, tuple(ids)), positions, parts)

    def _tagged(self, texts: Sequence[str], frame: Frame) -> list[str]:
        """The steps as they stand in the input: with a tag each is two pieces, the step with its
        tag and the joint behind it."""
        tag = self._options.step_token
        if not tag:
            kept = [*texts[:-1], texts[-1].rstrip()] if frame.strips else list(texts)
            return [kept[0].lstrip(), *kept[1:]] if frame.strips else kept
        broken = f"{tag[:1]} {tag[1:]}" if len(tag.strip()) > 1 else tag
        shown = [
            text.replace(tag, broken).removesuffix(self._options.separator).strip()
            for text in texts
        ]
        pieces: list[str] = []
        for i, text in enumerate(shown):
            pieces += [text + tag, self._options.joint if i + 1 < len(shown) else ""]
        return pieces

    # --- what it says

    def _values(self, output: TokenOutput) -> list[float]:
        """Step scores; [] with a failure."""
        return [] if output.failure else [self._activated(logits) for logits in output.logits]

    def _activated(self, logits: Sequence[float]) -> float:
        label = 0 if len(logits) == 1 else self._options.positive_label
        if label >= len(logits):
            raise RewardError(
                f"reward '{self._spec.name}': positive_label={label}, and the model has"
                f" {len(logits)} labels, numbered from 0; give"
                f" reward.specs.{self._spec.name}.positive_label=<0 to {len(logits) - 1}>"
            )
        if not all(math.isfinite(logit) for logit in logits):
            return math.nan
        if self._options.activation == "none":
            return float(logits[label])
        if self._options.activation == "auto" and len(logits) > 1:
            return _softmax_share(logits, label)
        return _sigmoid(logits[label])

    def _verdicts(
        self, items: Sequence[ScoreItem], values: Sequence[list[float] | None]
    ) -> list[Any]:
        """The aggregates, or what rm_postprocess makes of the step scores; None where there are
        none."""
        there = [i for i, steps in enumerate(values) if steps and all(map(math.isfinite, steps))]
        whole = [values[i] or [] for i in there]
        if self._dropin is not None and self._dropin.postprocess is not None and there:
            told = postprocess(
                self._dropin, [list(steps) for steps in whole], [items[i] for i in there]
            )
        else:
            told = [AGGREGATES[self._options.aggregate](steps) for steps in whole]
        verdicts: list[Any] = [None] * len(items)
        for i, verdict in zip(there, told, strict=True):
            verdicts[i] = verdict
        return verdicts

    def _result(
        self, output: TokenOutput, values: Sequence[float], read: _Read, verdict: Any
    ) -> ScoreResult:
        shared: dict[str, Any] = {
            "rendered": read.rendered.text,
            "tokens_in": output.tokens_in,
            "cached": output.cached,
        }
        if output.failure:
            return ScoreResult(value=None, status=output.failure, detail=output.detail, **shared)
        if not values or not all(map(math.isfinite, values)):
            return ScoreResult(
                value=None,
                status="provider_error",
                detail=f"the model gave the step scores {list(values)}",
                **shared,
            )
        shared["raw_text"] = " ".join(f"{value:.6g}" for value in values)
        checked = check_verdict(verdict)
        if checked.value is None:
            return without_verdict(checked, extra=checked.extra, **shared)
        if self._options.to_tokens and read.parts.ends is None:
            return ScoreResult(value=None, status="user_error", detail=self._not_found(), **shared)
        extra = {"num_steps": len(values), **checked.extra}
        if read.parts.whole:
            extra["steps_left_out"] = read.parts.whole - len(values)
        return ScoreResult(
            value=checked.value, steps=self._steps(values, read.parts), extra=extra, **shared
        )

    def _steps(self, values: Sequence[float], parts: Parts) -> tuple[Step, ...]:
        if not self._options.to_tokens or parts.ends is None:
            return ()
        return tuple(Step(end, value) for end, value in zip(parts.ends, values, strict=True))

    def _not_found(self) -> str:
        return (
            "rm_preprocess returned a step that is not in the response as it was given, so its"
            " score belongs to no token; return parts of text_responses in their order, or set"
            f" reward.specs.{self._spec.name}.to_tokens=false"
        )


def _unread(error: RowError) -> _Read:
    """A row of which rm_preprocess made nothing."""
    return _Read(Rendered("", (), problem=f"{error.what} {error.detail}"), (), Parts((), ()))


def _parts_of(
    returned: Any, item: ScoreItem, tokenizer: Any, *, origin: Origin
) -> Parts | RowError:
    """A list of steps, or (prompt, steps), as a drop-in returned it for one response."""
    prompt, steps = (
        returned
        if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], list)
        else (None, returned)
    )
    readable = isinstance(steps, list) and steps and all(isinstance(step, str) for step in steps)
    if not readable or not (prompt is None or isinstance(prompt, str | list)):
        return RowError(
            origin.what,
            f"returned {repr(returned)[:80]} ({type(returned).__name__}) for a response; give a"
            " list of its steps, ['First ...', 'So ...'], or a tuple (prompt, steps)"
            f" {origin.seen_on(item.response)}",
        )
    text, places = neutralised_with_map(item.response, tokenizer)
    found = locate_steps(steps, text)
    return Parts(
        tuple(steps), None if found is None else tuple(places[end] for end in found), prompt
    )


def _softmax_share(logits: Sequence[float], label: int) -> float:
    highest = max(logits)
    weights = [math.exp(logit - highest) for logit in logits]
    return weights[label] / math.fsum(weights)


def _sigmoid(logit: float) -> float:
    """Without overflow on either side."""
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))
