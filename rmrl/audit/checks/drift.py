"""What has changed since an earlier audit: the scores of the same responses, and the verdicts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.finding import Example, Finding, Trial, noted, unmeasured
from rmrl.evaluation.compare.mcnemar import mcnemar

_TOLERANCE = 1e-6


class Drift:
    """Compares scores of equal responses."""

    name: ClassVar[str] = "drift"
    needs: ClassVar[str] = "against=, an earlier audit.json of the same rows"
    responses_per_row: ClassVar[int] = 1
    probe: ClassVar[Probe] = Probe(
        code="def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return 0.9 * solution_str.endswith('#### ' + ground_truth)\n",
        before="def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(solution_str.endswith('#### ' + ground_truth))\n",
    )

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it."""
        name, tried = "drift.scores", "responses that both audits scored"
        await bench.goldens()
        cases = [row.case(text) for row in bench.rows for text in row.responses]
        await bench.subject.score(cases)
        if bench.earlier is None:
            return [unmeasured(name, tried, "no earlier audit: give against=<audit.json>")]
        before = bench.earlier["scores"]
        now = bench.subject.scores()
        common = [key for key in now if key in before]
        if not common:
            return [unmeasured(name, tried, "the audits have no response in common")]
        prompts = {key: number for number, key in enumerate(common)}
        trials = [
            Trial(differs(before[key], now[key]), _example(before[key], now[key])) for key in common
        ]
        findings = [bench.limits.never(name, tried, trials, fault="have another score")]
        both = [key for key in common if None not in (before[key], now[key])]
        terms = np.asarray([[before[key] for key in both], [now[key] for key in both]])
        tested = mcnemar((terms, np.asarray([prompts[key] for key in both])))
        if tested is not None:
            direction = (
                f"{tested['only_b']} rose and {tested['only_a']} fell of {len(both)};"
                f" p={tested['p']:.2g} for no change of the mean"
            )
            findings.append(noted("drift.direction", "McNemar's test", direction))
        return findings


def differs(before: float | None, now: float | None) -> bool:
    """Return whether two scores differ."""
    if before is None or now is None:
        return before is not now
    return abs(before - now) > _TOLERANCE


def _example(before: float | None, now: float | None) -> Example:
    return Example(prompt="", response="", score=now, note=f"before: {before}")
