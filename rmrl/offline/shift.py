"""How far scores move with the batch they are computed in, measured on a few rows.

In bfloat16 and float16 an engine may choose its kernels, and with them the order of its sums, by
the size of a batch; what is rounded away differs then, and a score with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rmrl.inference.precision import REDUCED
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.scoring.items import ResponseRow
from rmrl.rewards.scoring.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.types import ScoreResult


def reduced_types(spec: RewardSpec) -> list[str]:
    """The types of less than float32's precision in which engines of this reward compute and let
    the batch matter."""
    types = (engine.dtype for engine in spec.engines.values() if not engine.batch_invariant)
    return sorted({dtype for dtype in types if dtype in REDUCED})


async def shift_lines(scorer: Scorer, rows: Sequence[ResponseRow]) -> list[str]:
    """One sentence for each reward in reduced precision; its rows are scored together, then apart.
    No rows: not measured."""
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
    parts = _parts(spec, rows)
    if len(parts) < 2:
        return (
            "its scores may move with the batch; how far was not measured, which takes 2 rows or"
            " more (--shift-rows)"
        )
    together = await scorer.results_of(c, rows)
    apart: list[ScoreResult] = []
    for part in parts:
        apart += await scorer.results_of(c, part)
    words = compared(together, apart, texts=spec.sampling is not None)
    return (
        f"{words}; engine.dtype=float32 computes more precisely (docs/rewards/engines.md,"
        " Precision)"
    )


def compared(together: Sequence[ScoreResult], apart: Sequence[ScoreResult], *, texts: bool) -> str:
    """The largest difference of two series of scores of the same rows, in words; with `texts` also
    of what a judge wrote."""
    pairs = list(zip(together, apart, strict=True))
    moves = [
        abs(a.value - b.value) for a, b in pairs if a.value is not None and b.value is not None
    ]
    changed = sum((a.value is None) != (b.value is None) for a, b in pairs)
    rewritten = sum(a.raw_text != b.raw_text for a, b in pairs) if texts else 0
    words = (
        f"over {len(pairs)} rows, scored together and one by one, scores differ by up to"
        f" {max(moves, default=0.0):.3g}"
    )
    words += f", {rewritten} of its texts differ" if rewritten else ""
    return words + (f", verdicts that are there in one case only: {changed}" if changed else "")


def _parts(spec: RewardSpec, rows: Sequence[ResponseRow]) -> list[list[ResponseRow]]:
    """Single rows, or groups where the kind compares the responses to a prompt."""
    if not getattr(REWARD_KINDS[spec.kind], "whole_groups", False):
        return [[row] for row in rows]
    return [list(group) for _, group in groupby(rows, key=lambda row: row.group)]
