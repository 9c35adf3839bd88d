"""`rmrl check`: for a row, what each reward is told, what it says, what is read out of it, and how long that takes."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Sequence

from rmrl.config.schema import RewardCacheConfig
from rmrl.offline.check import CheckedScoring
from rmrl.offline.score import open_scorer
from rmrl.rewards.items import ResponseRow, score_item
from rmrl.rewards.spec import RewardSpec
from rmrl.types import Metrics, RewardBatch, ScoreResult

_MOST_CHARACTERS = 4000


async def show(checked: CheckedScoring, rows: Sequence[ResponseRow], *, notice: Callable[[str], None]) -> str:
    """Scores the rows twice: the first time loads engines, the second is timed. Verdicts may be missing; that is what it is for."""
    settings = dataclasses.replace(checked.config.reward, max_missing=1.0, max_missing_by_cause={}, cache=RewardCacheConfig())
    config = dataclasses.replace(checked.config, reward=settings)
    async with open_scorer(dataclasses.replace(checked, config=config), notice=notice) as scorer:
        first = await scorer.score(rows)
        timed = await scorer.score(rows)
        return "\n\n".join([*(_row(b, row, scorer.specs, timed) for b, row in enumerate(rows)), *_loads(first.metrics)])


def _row(b: int, row: ResponseRow, specs: Sequence[RewardSpec], batch: RewardBatch) -> str:
    total = f"reward {batch.rewards_B[b]:.6g}" if batch.keep_B[b] else "no reward: the row leaves the loss and its group's statistics"
    blocks = [_component(spec, row, batch.scores.results[c][b]) for c, spec in enumerate(specs)]
    return "\n".join([f"=== {row.prompt.id}: {total}", _indented("response", row.text), *blocks])


def _component(spec: RewardSpec, row: ResponseRow, result: ScoreResult) -> str:
    told = result.rendered or _told_to_a_rule(spec, row)
    said = f"score {result.value:.6g}" if result.value is not None else f"no verdict: {result.status}"
    tokens = f", {result.tokens_in} tokens in, {result.tokens_out} out" if result.tokens_in else ""
    lines = [f"--- {spec.name} ({spec.kind}, weight {spec.weight:g}): {said}, {result.latency_s:.3f} s{tokens}"]
    lines += [_indented("is told", told)] if result.status != "skipped" else []
    lines += [_indented("says", result.raw_text)] if result.raw_text else []
    lines += [f"  {result.detail}"] if result.detail else []
    lines += [f"  columns: {', '.join(f'{k}={v!r}' for k, v in result.extra.items())}"] if result.extra else []
    lines += [f"  steps: {', '.join(f'{s.value:.3g} (to character {s.end})' for s in result.steps)}"] if result.steps else []
    return "\n".join(lines)


def _told_to_a_rule(spec: RewardSpec, row: ResponseRow) -> str:
    item = score_item(row, spec)
    return f"solution_str={item.response!r}\nground_truth={item.ground_truth!r}\ndata_source={item.data_source!r}"


def _indented(what: str, text: str) -> str:
    shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ... ({len(text) - _MOST_CHARACTERS} more characters)"
    return f"  {what}:\n{textwrap.indent(shown, '    | ', lambda _: True)}"


def _loads(metrics: Metrics) -> list[str]:
    suffix = "/load_s"
    loads = {key.removeprefix("engine/").removesuffix(suffix): value for key, value in metrics.items() if key.endswith(suffix)}
    lines = [f"  {label}: {seconds:.1f} s" for label, seconds in loads.items()]
    return ["\n".join(["loading took", *lines])] if lines else []
