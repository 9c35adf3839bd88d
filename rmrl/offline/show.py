"""`rmrl check`: for each row every reward's input and output, the score read from it, and the time
it takes."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.config.schema import RewardCacheConfig
from rmrl.data.json_text import reference_value
from rmrl.offline.batch_dependence import shift_lines
from rmrl.offline.check_scoring import CheckedScoring
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.session.draw import Draw
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.session.response_part import part_item
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import RewardBatch

_MOST_CHARACTERS = 4000


def for_looking(checked: CheckedScoring) -> CheckedScoring:
    """Return the same without a budget for missing verdicts, which are displayed instead, and
    without the cache, so that each verdict is timed."""
    settings = dataclasses.replace(
        checked.config.reward, max_missing=1.0, max_missing_by_cause={}, cache=RewardCacheConfig()
    )
    return dataclasses.replace(checked, config=dataclasses.replace(checked.config, reward=settings))


async def show(
    scorer: Scorer, rows: Sequence[ResponseRow], *, compared: Sequence[ResponseRow] = ()
) -> str:
    """Score the rows twice, and format the second, timed result. The first time loads engines.

    `compared`: rows on which rewards in reduced precision are scored together and one by one.
    """
    everything = Draw(rows="all")
    loading = await scorer.score(rows, learn=False, draw=everything)
    batch = await scorer.score(rows, learn=False, draw=everything)
    sections: list[str] = []
    for b, row in enumerate(rows):
        title = f"=== {row.prompt.id}"
        if row.prompt.data_source:
            title += f", data source {row.prompt.data_source}"
        lines = [
            title,
            *_block("response", row.text),
            f"reference: {row.prompt.ground_truth!r}",
        ]
        for c, spec in enumerate(scorer.specs):
            lines += _component_lines(c, b, row, spec, batch)
        lines.append(f"--- reward: {_reward(b, scorer.specs, batch)}")
        sections.append("\n".join(lines))
    shifts = await shift_lines(scorer, compared)
    if shifts:
        sections.append("\n  ".join(["precision", *shifts]))
    loads: list[str] = []
    for key, seconds in loading.metrics.items():
        if key.endswith("/load_s"):
            label = key.removeprefix("engine/").removesuffix("/load_s")
            loads.append(f"{label}: {seconds:.1f} s")
    if loads:
        sections.append("\n  ".join(["loading took", *loads]))
    return "\n\n".join(sections)


def _component_lines(
    c: int, b: int, row: ResponseRow, spec: RewardSpec, batch: RewardBatch
) -> list[str]:
    """Component `c`'s input, output, score and cost on row `b`."""
    result = batch.scores.results[c][b]
    weight = f", weight {spec.weight:g}" if spec.sources is None else ""
    reads = "" if spec.reads.part == "all" else f", reads {spec.reads}"
    lines = [f"--- {spec.name} ({spec.kind}{weight}{reads})"]
    if spec.labels is not None:
        role = REWARD_KINDS[spec.kind].labels_of
        what = "labels" if role == "main" else f"labels of {role}"
        lines.append(f"{what}: {spec.labels}")
    if result.read is not None and result.rendered:
        lines += _block("reads", result.read)
    if result.status != "skipped" and not result.unasked:
        lines += _block("input", result.rendered or _rule_input(spec, row))
    if result.raw_text:
        lines += _block("output", result.raw_text)
    if result.extra:
        parts: list[str] = []
        entries: list[str] = []
        for name, value in result.extra.items():
            if isinstance(value, list) and value and isinstance(value[0], Mapping):
                # such as the criteria of a rubric: a line each
                entries += [f"  {name}[{i}]: {dict(entry)!r}" for i, entry in enumerate(value)]
            else:
                parts.append(f"{name}={value!r}")
        if parts:
            lines.append(f"also returned: {', '.join(parts)}")
        lines += entries
    if result.steps and result.steps[0].turn is None:
        steps = ", ".join(f"{step.value:.3g} (to character {step.end})" for step in result.steps)
        lines.append(f"steps: {steps}")
    counted = None if batch.columns_BC is None else batch.columns_BC[b, c]
    if result.value is None:
        score = f"none, {result.status}: {result.detail}".removesuffix(": ")
    else:
        score = f"{result.value:.6g}"
        if counted is not None and counted != result.value:
            score += f", {counted:.6g} after its transforms"
        if result.detail:
            score += f" ({result.detail})"
    lines.append(f"score: {score}")
    took = f"took: {result.latency_s:.3f} s"
    if result.tokens_in:
        took += f", {result.tokens_in} tokens in, {result.tokens_out} out"
    return [*lines, took]


def _reward(b: int, specs: Sequence[RewardSpec], batch: RewardBatch) -> str:
    if batch.keep_B[b]:
        return f"{batch.rewards_B[b]:.6g}"
    missing: list[str] = []
    for c, spec in enumerate(specs):
        takes_part = batch.takes_part_BC is None or batch.takes_part_BC[b, c]
        if takes_part and batch.scores.results[c][b].status not in ("ok", "skipped"):
            missing.append(spec.name)
    reason = f" ({', '.join(missing)} gave no verdict)" if missing else ""
    return f"none{reason}: in training the response leaves the loss and its group's statistics"


def _rule_input(spec: RewardSpec, row: ResponseRow) -> str:
    """The arguments to a rule's call, one per line."""
    item = part_item(score_item(row, spec), spec.reads)
    arguments: dict[str, Any] = {
        "data_source": item.data_source,
        "solution_str": item.response,
        "ground_truth": reference_value(item.ground_truth),
    }
    if item.extra_info:
        arguments["extra_info"] = dict(item.extra_info)
    return "\n".join(f"{name}={value!r}" for name, value in arguments.items())


def _block(title: str, text: str) -> list[str]:
    more = len(text) - _MOST_CHARACTERS
    if more > 0:
        text = f"{text[:_MOST_CHARACTERS]} ... ({more} more characters)"
    return [f"{title}:", textwrap.indent(text or "(nothing)", "  | ", lambda _: True)]
