"""Kind `rule`: a Python function `compute_score(data_source, solution_str, ground_truth,
extra_info=None)`.

A function of TRL's form or a class of ms-swift's also works (`dropins.signatures`). It runs in a
pool of killable processes. It returns a number (bool and numpy scalars count), None for "no
verdict", or a dict with "score" plus extra columns. A row on which it raises or returns anything
else has no verdict, status "user_error". It is never a 0.
"""

from __future__ import annotations

import asyncio
import dataclasses
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rmrl.config.schema.fields import choice
from rmrl.data.json_text import reference_value
from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.dropins.signatures import InLists, rule_form
from rmrl.rewards.kinds.kind import Kind
from rmrl.rewards.kinds.rule.worker import GROUP
from rmrl.rewards.reads.turns import turn_count
from rmrl.types import ScoreItem, ScoreResult

if TYPE_CHECKING:
    from rmrl.rewards.kinds.shared.context import KindContext, Workers
    from rmrl.rewards.specs.spec import RewardSpec


NOT_MEANT = "the rule returned None: it does not apply to this response"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Entries that only this kind has."""

    arguments: dict[str, Any] = field(default_factory=dict)
    """The rule's own arguments, by name: those of the function, of the class, or of the function
    that returns the rule."""
    none: str = choice("unparseable", among=("unparseable", "skipped"))
    """Status where the function returns None. unparseable: the response has no verdict. skipped:
    the rule does not apply to the response, and adds 0 (as TRL takes None)."""
    tokenizer: str = ""
    """The policy's checkpoint or tokenizer, for a rule that takes completion_ids: responses that
    arrive as text are tokenized with it."""


class RuleReward(Kind):
    """A rule as a reward kind.

    A drop-in file is read once, on construction: editing it during a run changes nothing.
    """

    Options: ClassVar[type[Options]] = Options
    calls_function: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        function: FunctionSource,
        *,
        pool: Workers,
        timeout_s: float,
        token_ids: bool = False,
        groups: bool = False,
        none: str = "unparseable",
        tokenizer: Any = None,
    ) -> None:
        """`timeout_s`: one response's deadline, in seconds of the worker's own time (`own_time`)
        from the call of the function.

        `token_ids`: the rule needs the responses' token ids. `groups`: it takes lists, and is
        called with the responses to one prompt together. `none`: the status that None leads to.
        `tokenizer`: for responses that arrive as text.
        """
        if timeout_s <= 0:
            raise ValueError(
                f"reward '{name}': timeout_s is {timeout_s}; give a positive number of seconds,"
                " e.g. 10."
            )
        self.name = name
        self.source = function.frozen()
        self.pool = pool
        self.timeout_s = timeout_s
        self.token_ids = token_ids
        self.groups = groups
        self.none = none
        self.tokenizer = tokenizer

    @classmethod
    def from_spec(cls, spec: RewardSpec, context: KindContext) -> RuleReward:
        assert spec.function is not None
        # a spec that a program makes by itself may have none
        options = spec.options if isinstance(spec.options, Options) else Options()
        token_ids = False
        if spec.dropin is not None and spec.dropin.compute_score is not None:
            form = rule_form(spec.dropin.compute_score, spec.name)
            token_ids = isinstance(form, InLists) and form.reads_token_ids
        tokenizer = None
        if token_ids and options.tokenizer:
            tokenizer = context.tokenizer(options.tokenizer)
        return cls(
            spec.name,
            spec.function,
            pool=context.pool,
            timeout_s=spec.timeout_s,
            token_ids=token_ids,
            groups=spec.whole_groups,
            none=options.none,
            tokenizer=tokenizer,
        )

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """One verdict per item, in order. RewardFunctionError when a worker cannot import the
        function."""
        results = await self._called(items)
        if self.none != "skipped":
            return results
        return [
            dataclasses.replace(result, status="skipped", detail=NOT_MEANT)
            if result.status == "unparseable"
            else result
            for result in results
        ]

    async def _called(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        calls: list[dict[str, Any]] = []
        for item in items:
            if self.tokenizer is not None and not len(item.token_ids):
                whole = item.response if item.whole is None else item.whole
                ids = self.tokenizer(whole, add_special_tokens=False)["input_ids"]
                item = dataclasses.replace(item, token_ids=tuple(ids))
            calls.append(call_of(item, token_ids=self.token_ids))
        if not self.groups:
            return await asyncio.wrap_future(
                self.pool.submit(self.source, calls, self.timeout_s, self.name)
            )
        groups = groups_of(items)
        longest = max(map(len, groups), default=1)
        packed: list[dict[str, Any]] = []
        for group in groups:
            packed.append({GROUP: [calls[i] for i in group]})
        answers = await asyncio.wrap_future(
            self.pool.submit(self.source, packed, self.timeout_s * longest, self.name)
        )
        results: dict[int, ScoreResult] = {}
        for group, answer in zip(groups, answers, strict=True):
            results.update(zip(group, unpacked(answer, len(group)), strict=True))
        return [results[i] for i in range(len(items))]


def groups_of(items: Sequence[ScoreItem]) -> list[list[int]]:
    """Positions of each group's items, in order of the groups' first items."""
    groups: dict[int, list[int]] = {}
    for i, item in enumerate(items):
        groups.setdefault(item.group, []).append(i)
    return list(groups.values())


def unpacked(answer: ScoreResult, count: int) -> list[ScoreResult]:
    """The results of one group's responses. A time-out or a lost worker is the result of all."""
    if GROUP not in answer.extra:
        return [answer] * count
    share = answer.latency_s / count
    results: list[ScoreResult] = []
    for status, value, detail, extra in answer.extra[GROUP]:
        result = ScoreResult(
            value=value, status=status, detail=detail, extra=extra, latency_s=share
        )
        results.append(result)
    return results


def call_of(item: ScoreItem, *, token_ids: bool = False) -> dict[str, Any]:
    """Arguments that a rule may name, for one response; token ids on demand, as they are long. As
    in verl, `extra_info` has a conversation's `num_turns`, too."""
    num_turns = turn_count(item)
    extra_info = dict(item.extra_info)
    if item.conversation is not None:
        extra_info.setdefault("num_turns", num_turns)
    arguments: dict[str, Any] = {
        "data_source": item.data_source,
        "solution_str": item.response,
        "ground_truth": reference_value(item.ground_truth),
        "extra_info": extra_info,
        "messages": list(map(dict, item.messages)),
        "plain_text": item.plain_text,
        "finish_reason": item.finish_reason,
        "response_tokens": item.response_tokens,
        "num_turns": num_turns,
    }
    if token_ids:
        ids = np.asarray(item.token_ids, dtype=np.int64)
        arguments["completion_ids"] = array("q", ids.tobytes())
    return arguments
