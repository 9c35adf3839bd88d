"""Seconds and tokens that rewards take for many responses, estimated by scoring a few."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmrl.data.dataset import PromptTable
from rmrl.data.surrogates import replaced
from rmrl.offline.summary import Cost
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.session.items import OTHER_ANSWER, ResponseRow
from rmrl.rewards.session.missing import VerdictCounts
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.telemetry.clock import rough_duration

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Responses for which the cost is estimated."""

    title: str
    responses: int
    sources: Mapping[str, int]
    """Data source -> number of rows in the data."""
    rows_of: Callable[[RewardSpec], Sequence[ResponseRow]]
    """Rows on which a reward is measured; those of data sources with other rewards are left out."""
    before: tuple[str, ...] = ()
    """Lines on what is done before the rewards."""
    seconds_before: float | None = 0.0
    """Seconds of that, None where they are not estimated."""
    of_step: bool = False
    """Whether these are the responses in one step of a run."""

    def responses_of(self, spec: RewardSpec) -> float:
        """Return how many responses a reward scores, by the sources' shares; for a watcher the mean
        over all steps."""
        rows = sum(count for source, count in self.sources.items() if counts_for(spec, source))
        responses = self.responses * rows / max(sum(self.sources.values()), 1)
        if spec.watch is None:
            return round(responses)
        # Without steps `every` has no effect.
        every = spec.watch.every if self.of_step else 1
        return responses * spec.watch.rows / every


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCost:
    """One reward's cost on the rows on which it was measured."""

    name: str
    seconds: float
    verdicts: VerdictCounts
    tokens: Cost


def counts_for(spec: RewardSpec, source: str) -> bool:
    """Return whether a reward scores a data source's rows."""
    return spec.sources is None or source in spec.sources


def first_of_each(sources: Sequence[str], count: int) -> list[int]:
    """Return where each data source's first `count` rows are, in order."""
    taken: Counter[str] = Counter()
    positions: list[int] = []
    for position, source in enumerate(sources):
        taken[source] += 1
        if taken[source] <= count:
            positions.append(position)
    return positions


def of_rows(rows: Sequence[ResponseRow], *, responses: int) -> Workload:
    """Return `responses` responses like the given ones."""

    def rows_of(spec: RewardSpec) -> list[ResponseRow]:
        return [row for row in rows if counts_for(spec, row.prompt.data_source)]

    return Workload(
        title=f"{responses:,} responses like these",
        responses=responses,
        sources=Counter(row.prompt.data_source for row in rows),
        rows_of=rows_of,
    )


def step_rows(
    prompts: PromptTable, spec: RewardSpec, *, count: int, group_size: int, tokens: int, coder: Any
) -> list[ResponseRow]:
    """Return about `count` full-length responses to prompts that are spread evenly over the data
    and that the reward scores.

    `tokens`: a response's length, which is the reference answer again and again; `coder`: the
    policy's tokenizer. Rewards that compare get whole groups with `group_size` responses.
    """
    positions: list[int] = [
        position
        for position, source in enumerate(prompts.data_sources())
        if counts_for(spec, source)
    ]
    if not positions:
        return []
    each = 1
    if REWARD_KINDS[spec.kind].whole_groups:
        each = group_size
    groups = min(max(count // each, 1), len(positions))
    spread = np.linspace(0, len(positions) - 1, groups).round().astype(int)
    rows: list[ResponseRow] = []
    for group, index in enumerate(spread.tolist()):
        prompt = prompts[positions[index]]
        for number in range(each):
            # Equal texts would be scored once.
            answer = replaced(f"({number + 1}) {prompt.ground_truth or OTHER_ANSWER}\n")
            ids = coder(answer, add_special_tokens=False)["input_ids"] or [0]
            repeated = (ids * (tokens // len(ids) + 1))[:tokens]
            text = coder.decode(repeated, skip_special_tokens=True)
            rows.append(
                ResponseRow(
                    prompt=prompt, text=text, tokens=tokens, group=group, token_ids=repeated
                )
            )
    return rows


async def estimate(scorer: Scorer, workload: Workload) -> list[str]:
    """Measure every reward in a loaded scorer, one after another, and return the lines to print."""
    lines = list(workload.before)
    total = workload.seconds_before
    for c, spec in enumerate(scorer.parts):
        if REWARD_KINDS[spec.kind].combines:
            continue
        rows = workload.rows_of(spec)
        responses = workload.responses_of(spec)
        if not rows or not responses:
            lines.append(f"{spec.name}: counts for none of these rows")
            continue
        _log.info(f"{spec.name} scores {len(rows)} responses for the estimate")
        # The first time may start a worker, or wake an engine that another one has displaced.
        # Servers may charge for every request.
        if not REWARD_KINDS[spec.kind].scores_on_server:
            await scorer.results_of(c, rows)
        start = time.perf_counter()
        results = await scorer.results_of(c, rows)
        cost = RewardCost(
            name=spec.name,
            seconds=time.perf_counter() - start,
            verdicts=VerdictCounts(),
            tokens=Cost(),
        )
        cost.verdicts.add(results)
        cost.tokens.add(results)
        seconds = cost.seconds / len(results) * responses
        if total is not None:
            total += seconds
        lines.append(cost_line(cost, responses))
    if total is None:
        lines.append("the rewards are added up one after another; the policy's time comes on top")
    else:
        lines.append(f"together: about {rough_duration(total)}, one after another")
    return [workload.title, *lines]


def cost_line(cost: RewardCost, responses: float) -> str:
    """Format what `responses` responses cost, a mean where it is no whole number."""
    rows = cost.verdicts.rows
    seconds = cost.seconds / rows * responses
    count = f"{responses:,.0f}"
    if abs(responses - round(responses)) > 1e-6:
        count = f"{responses:,.2g} (on average)" if responses < 10 else f"{count} (on average)"
    line = (
        f"{cost.name}: {count} responses in about {rough_duration(seconds)} ({rows} took"
        f" {cost.seconds:.3g} s)"
    )
    # A training step computes what the cache answered here.
    tokens_in = cost.tokens.tokens_in + cost.tokens.cached_tokens_in
    tokens_out = cost.tokens.tokens_out + cost.tokens.cached_tokens_out
    if tokens_in:
        line += (
            f", {responses * tokens_in / rows:,.0f} tokens in and"
            f" {responses * tokens_out / rows:,.0f} out"
        )
    missing = sorted(cost.verdicts.without_number().items())
    if missing:
        statuses = ", ".join(f"{count} {status}" for status, count in missing)
        line += f"; without a verdict: {statuses}"
    return line
