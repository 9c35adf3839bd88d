"""Dependence of scores on the batch in which they are computed, measured on a few rows.

In bfloat16 and float16 an engine may choose its kernels, and with them its sums' order, by
a batch's size. The rounding then differs, and so does the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rmrl.inference.precision import REDUCED
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.session.items import ResponseRow
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreResult


def reduced_types(spec: RewardSpec) -> list[str]:
    """Return the types below float32's precision in which engines of this reward compute, without
    those of batch-invariant engines."""
    types = {engine.dtype for engine in spec.engines.values() if not engine.batch_invariant}
    return sorted(types & set(REDUCED))


async def shift_lines(scorer: Scorer, rows: Sequence[ResponseRow]) -> list[str]:
    """Return one sentence per reward in reduced precision. Its rows are scored together, then one
    by one. Without rows nothing is measured."""
    lines: list[str] = []
    for c, spec in enumerate(scorer.parts):
        types = reduced_types(spec)
        if types:
            lines.append(
                f"{spec.name} computes in {' and '.join(types)}: {await _sentence(scorer, c, rows)}"
            )
    return lines


async def _sentence(scorer: Scorer, c: int, rows: Sequence[ResponseRow]) -> str:
    spec = scorer.parts[c]
    if spec.sampling is not None and spec.sampling.temperature > 0:
        return (
            f"its verdicts are drawn at temperature {spec.sampling.temperature:g} and differ from"
            " run to run in any type"
        )
    parts = [[row] for row in rows]
    if REWARD_KINDS[spec.kind].whole_groups:
        parts = [list(group) for _, group in groupby(rows, key=lambda row: row.group)]
    if len(parts) < 2:
        return (
            "its scores may depend on the batch; this was not measured, which takes 2 rows or more"
            " (--shift-rows)"
        )
    together = await scorer.results_of(c, rows)
    separate: list[ScoreResult] = []
    for part in parts:
        separate += await scorer.results_of(c, part)
    sentence = compared(together, separate, texts=spec.sampling is not None)
    return (
        f"{sentence}; engine.dtype=float32 computes more precisely (docs/rewards/engines.md,"
        " Precision)"
    )


def compared(
    together: Sequence[ScoreResult], separate: Sequence[ScoreResult], *, texts: bool
) -> str:
    """Format the largest difference between two series of scores for the same rows; with `texts`
    also the number of judges' texts that differ."""
    largest = 0.0
    one_sided = 0
    rewritten = 0
    for first, second in zip(together, separate, strict=True):
        if first.value is not None and second.value is not None:
            largest = max(largest, abs(first.value - second.value))
        elif first.value != second.value:
            one_sided += 1
        if texts and first.raw_text != second.raw_text:
            rewritten += 1
    sentence = (
        f"over {len(together)} rows, scored together and one by one, scores differ by up to"
        f" {largest:.3g}"
    )
    if rewritten:
        sentence += f", {rewritten} of its texts differ"
    if one_sided:
        sentence += f", verdicts that exist in one case only: {one_sided}"
    return sentence
