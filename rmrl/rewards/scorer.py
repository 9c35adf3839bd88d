"""The one way from responses to rewards, alike in training, offline scoring and checks.

items -> rules (killable workers) --------------------------.
      -> models, engine by engine, the awake ones first ----+--> Scores --> combine --> RewardBatch
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rmrl.errors import MissingVerdictsError, RewardFunctionError, StallError
from rmrl.rewards.combine import combine
from rmrl.rewards.engines.merge import MergedCalls
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.context import KindContext
from rmrl.rewards.kinds.rule_pool import RulePool
from rmrl.rewards.residency import Engine, Residency, plan_engines
from rmrl.rewards.spec import RewardSpec
from rmrl.types import ProcessHost, Prompt, RewardBatch, RewardKind, ScoreItem, ScoreResult, Scores

_NOT_MISSING = ("ok", "skipped")


class Scorer:
    """Scores responses with every component and combines them. Use `close` when done: it ends engines and workers."""

    def __init__(
        self,
        specs: Sequence[RewardSpec],
        *,
        host: ProcessHost,
        tokenizer: Callable[[str], Any],
        how: str = "weighted_sum",
        max_missing: float = 0.2,
        rule_workers: int = 2,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.specs = tuple(specs)
        self._how, self._max_missing = how, max_missing
        self._pool = RulePool(rule_workers)
        self.residency = Residency(host, plan_engines(specs), notice=notice)
        self._context = KindContext(pool=self._pool, tokenizer=tokenizer)

    async def score(self, items: Sequence[Sequence[ScoreItem]]) -> RewardBatch:
        """`items[c]` are the responses as component c is told them (its own rm_prompt).

        Raises RewardFunctionError (a drop-in raised or miscounted), MissingVerdictsError, StallError, EngineLostError.
        """
        results: dict[int, list[ScoreResult]] = {}
        rules = [c for c, spec in enumerate(self.specs) if not spec.needs_model]
        rule_work = [asyncio.create_task(self._run_rule(c, items[c])) for c in rules]
        try:
            for key in self.residency.order():
                results |= await self._run_engine(key, items)
            results |= dict(zip(rules, await asyncio.gather(*rule_work), strict=True))
        finally:
            for task in rule_work:
                task.cancel()
            await asyncio.gather(*rule_work, return_exceptions=True)
        scores = Scores(names=tuple(s.name for s in self.specs), results=tuple(tuple(results[c]) for c in range(len(self.specs))))
        self._check_missing(scores)
        batch = combine(scores, self.specs, how=self._how)
        return dataclasses.replace(batch, metrics=self.residency.take_metrics())

    async def close(self) -> None:
        """End engine processes and rule workers."""
        await self.residency.close()
        self._pool.close()

    def items_for(self, c: int, rows: Sequence[tuple[Prompt, str, str, int]]) -> list[ScoreItem]:
        """(prompt, response text, finish reason, response tokens) -> what component c is told."""
        return [score_item(prompt, text, self.specs[c], finish_reason=reason, tokens=tokens) for prompt, text, reason, tokens in rows]

    def kind(self, c: int, calls: MergedCalls | None = None) -> RewardKind:
        """The scoring object of component c; `calls` is its way to its engine."""
        spec = self.specs[c]
        return REWARD_KINDS[spec.kind].from_spec(spec, dataclasses.replace(self._context, calls=calls))

    async def _run_rule(self, c: int, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        return self._counted(c, await self.kind(c).score(items), items)

    async def _run_engine(self, key: Any, items: Sequence[Sequence[ScoreItem]]) -> dict[int, list[ScoreResult]]:
        members = [c for c, spec in enumerate(self.specs) if spec.engine is not None and spec.engine.key == key]
        deadline_s = max(self.specs[c].timeout_s for c in members)
        async with self.residency.use(key) as engine:
            calls = MergedCalls(partial(_call, engine, deadline_s), participants=len(members))
            try:
                scored = await asyncio.gather(*(self._run_model(c, items[c], calls) for c in members), return_exceptions=True)
            finally:
                calls.cancel()
            for outcome in scored:  # inside the block: an engine that was lost must not be put to sleep
                if isinstance(outcome, BaseException):
                    raise outcome
        return dict(zip(members, scored, strict=True))  # type: ignore[arg-type]

    async def _run_model(self, c: int, items: Sequence[ScoreItem], calls: MergedCalls) -> list[ScoreResult]:
        started = time.perf_counter()
        try:
            results = self._counted(c, await self.kind(c, calls).score(items), items)
        except StallError as error:
            raise StallError(f"reward '{self.specs[c].name}' took longer than its {self.specs[c].timeout_s:g} s: {error}") from error
        finally:
            calls.leave()
        share = (time.perf_counter() - started) / max(len(items), 1)
        return [dataclasses.replace(r, latency_s=r.latency_s or share) for r in results]

    def _counted(self, c: int, results: list[ScoreResult], items: Sequence[ScoreItem]) -> list[ScoreResult]:
        if len(results) != len(items):
            raise RewardFunctionError(f"reward '{self.specs[c].name}' returned {len(results)} scores for {len(items)} responses")
        return results

    def _check_missing(self, scores: Scores) -> None:
        for name, column in zip(scores.names, scores.results, strict=True):
            missing = [r for r in column if r.status not in _NOT_MISSING]
            if column and len(missing) / len(column) > self._max_missing:
                raise MissingVerdictsError(_missing_message(name, missing, total=len(column), allowed=self._max_missing))


async def _call(engine: Engine, deadline_s: float, method: str, requests: list[Any]) -> list[Any]:
    return await engine.call(method, requests, timeout_s=deadline_s)


def _missing_message(name: str, missing: Sequence[ScoreResult], *, total: int, allowed: float) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in Counter(r.status for r in missing).most_common())
    details = "\n".join(f"  {detail}" for detail in dict.fromkeys(r.detail for r in missing if r.detail))[:1500]
    return (
        f"reward '{name}' gave no verdict for {len(missing)} of {total} responses ({counts}); reward.max_missing={allowed:g} allows "
        f"{allowed:.0%}. A policy must not learn from a judge that is not there: mend the reward, or raise reward.max_missing.\n{details}"
    ).rstrip()


def score_item(prompt: Prompt, text: str, spec: RewardSpec, *, finish_reason: str = "stop", tokens: int = 0) -> ScoreItem:
    """What the reward `spec` is told of one response."""
    return ScoreItem(
        prompt_id=prompt.id,
        messages=prompt.messages,
        response=text,
        rm_prompt=_rm_prompt(prompt, spec),
        ground_truth=prompt.ground_truth,
        data_source=prompt.data_source,
        extra_info=prompt.extra_info,
        finish_reason=finish_reason,
        response_tokens=tokens,
    )


def _rm_prompt(prompt: Prompt, spec: RewardSpec) -> Any:
    """rm_prompt_<name>, else rm_prompt_<i>, else rm_prompt, else the last user turn. Empty ones do not count."""
    for key in (spec.name, str(spec.model_index), ""):
        if prompt.rm_prompts.get(key):
            return prompt.rm_prompts[key]
    users = [m["content"] for m in prompt.messages if m["role"] == "user"]
    return users[-1] if users else prompt.messages[-1]["content"]
