"""`rmrl check`: for a row, what each reward is told, what it says, what is read out of it, and how
long that takes."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence

from rmrl.config.schema import RewardCacheConfig
from rmrl.offline.check import CheckedScoring
from rmrl.offline.shift import shift_lines
from rmrl.rewards.scoring.items import ResponseRow, score_item
from rmrl.rewards.scoring.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import Metrics, RewardBatch, ScoreResult

_MOST_CHARACTERS = 4000


def for_looking(checked: CheckedScoring) -> CheckedScoring:
    """The same, but a missing verdict stops nothing (it is shown), and none comes from the cache
    (each is timed)."""
    settings = dataclasses.replace(
        checked.config.reward, max_missing=1.0, max_missing_by_cause={}, cache=RewardCacheConfig()
    )
    return dataclasses.replace(checked, config=dataclasses.replace(checked.config, reward=settings))


async def show(
    scorer: Scorer, rows: Sequence[ResponseRow], *, compared: Sequence[ResponseRow] = ()
) -> str:
    """Scores the rows twice: the first time loads engines, the second is timed and shown.

    `compared`: rows on which rewards in reduced precision are scored together and one by one.
    """
    loading = await scorer.score(rows, learn=False)
    shown = await scorer.score(rows, learn=False)
    responses = [_response(b, row, scorer.specs, shown) for b, row in enumerate(rows)]
    shifts = await shift_lines(scorer, compared)
    precision = ["\n".join(["precision", *(f"  {line}" for line in shifts)])] if shifts else []
    return "\n\n".join([*responses, *precision, *_loads(loading.metrics)])


def _response(b: int, row: ResponseRow, specs: Sequence[RewardSpec], batch: RewardBatch) -> str:
    head = [
        f"=== {row.prompt.id}",
        *_block("response", row.text),
        f"reference: {row.prompt.ground_truth!r}",
    ]
    return "\n".join(
        [
            *head,
            *(_component(c, b, row, spec, batch) for c, spec in enumerate(specs)),
            _total(b, specs, batch),
        ]
    )


def _component(c: int, b: int, row: ResponseRow, spec: RewardSpec, batch: RewardBatch) -> str:
    result = batch.scores.results[c][b]
    lines = [
        f"--- {spec.name}"
        f" ({spec.kind}{f', weight {spec.weight:g}' if spec.sources is None else ''})"
    ]
    if result.status != "skipped":
        lines += _block("is told", result.rendered or _told_to_a_rule(spec, row))
    lines += _block("says", result.raw_text) if result.raw_text else []
    lines += (
        [f"also returned: {', '.join(f'{k}={v!r}' for k, v in result.extra.items())}"]
        if result.extra
        else []
    )
    lines += (
        [f"steps: {', '.join(f'{s.value:.3g} (to character {s.end})' for s in result.steps)}"]
        if result.steps
        else []
    )
    return "\n".join([*lines, f"score: {_verdict(c, b, batch)}", f"took: {_cost(result)}"])


def _verdict(c: int, b: int, batch: RewardBatch) -> str:
    result = batch.scores.results[c][b]
    if result.value is None:
        return (
            f"none, {result.status}: {result.detail}" if result.detail else f"none, {result.status}"
        )
    counted = batch.columns_BC[b, c] if batch.columns_BC is not None else result.value
    after = f", {counted:.6g} after its transforms" if counted != result.value else ""
    return f"{result.value:.6g}{after}{f' ({result.detail})' if result.detail else ''}"


def _cost(result: ScoreResult) -> str:
    return f"{result.latency_s:.3f} s" + (
        f", {result.tokens_in} tokens in, {result.tokens_out} out" if result.tokens_in else ""
    )


def _total(b: int, specs: Sequence[RewardSpec], batch: RewardBatch) -> str:
    if batch.keep_B[b]:
        return f"--- reward: {batch.rewards_B[b]:.6g}"
    lacking = [spec.name for c, spec in enumerate(specs) if _costs_the_reward(c, b, batch)]
    why = f" ({', '.join(lacking)} gave no verdict)" if lacking else ""
    return (
        f"--- reward: none{why}: in training the response leaves the loss and its group's"
        " statistics"
    )


def _costs_the_reward(c: int, b: int, batch: RewardBatch) -> bool:
    """Whether the component has no verdict where it takes part."""
    takes_part = batch.takes_part_BC is None or bool(batch.takes_part_BC[b, c])
    return takes_part and batch.scores.results[c][b].status not in ("ok", "skipped")


def _told_to_a_rule(spec: RewardSpec, row: ResponseRow) -> str:
    item = score_item(row, spec)
    told = {
        "data_source": item.data_source,
        "solution_str": item.response,
        "ground_truth": item.ground_truth,
    }
    told |= {"extra_info": dict(item.extra_info)} if item.extra_info else {}
    return "\n".join(f"{name}={value!r}" for name, value in told.items())


def _block(what: str, text: str) -> list[str]:
    shown = (
        text
        if len(text) <= _MOST_CHARACTERS
        else f"{text[:_MOST_CHARACTERS]} ... ({len(text) - _MOST_CHARACTERS} more characters)"
    )
    return [f"{what}:", textwrap.indent(shown or "(nothing)", "  | ", lambda _: True)]


def _loads(metrics: Metrics) -> list[str]:
    suffix = "/load_s"
    loads = {
        key.removeprefix("engine/").removesuffix(suffix): value
        for key, value in metrics.items()
        if key.endswith(suffix)
    }
    return (
        [
            "\n".join(
                [
                    "loading took",
                    *(f"  {label}: {seconds:.1f} s" for label, seconds in loads.items()),
                ]
            )
        ]
        if loads
        else []
    )
