"""Changes since an earlier audit on the same rows.

A rule must give the same scores. A judge's scores move a little from run to run, so paired tests
decide: whether its mean has moved, and whether its verdicts have moved to one side. Both count the
responses to a prompt as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from scipy.stats import norm, wilcoxon

from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.finding import Example, Finding, Trial, Verdict, noted, unmeasured
from rmrl.evaluation.compare.difference import Terms, by_prompt
from rmrl.evaluation.compare.mcnemar import mcnemar

_TOLERANCE = 1e-6
_LEAST_PROMPTS = 6
_POWER = 0.8
_TESTS = 2


class Drift:
    """Compares scores for equal responses."""

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
        trials = [
            Trial(differs(before[key], now[key]), _example(before[key], now[key])) for key in common
        ]
        equal = bench.limits.never(name, tried, trials, fault="have another score")
        if bench.laboratory is None:
            equal = noted(name, tried, equal.found, rows=equal.rows)
        prompts = bench.subject.prompts()
        both = [key for key in common if None not in (before[key], now[key])]
        return [equal, *moved(before, now, both, [prompts[key] for key in both], bench)]


def moved(
    before: Mapping[str, float | None],
    now: Mapping[str, float | None],
    both: Sequence[str],
    prompts: Sequence[str],
    bench: Bench,
) -> list[Finding]:
    """Return the paired tests on mean and verdicts. They decide where the reward is no rule."""
    _, numbers_T = np.unique(np.asarray(prompts), return_inverse=True)
    scores_AT = np.asarray([[each[key] for key in both] for each in (before, now)], np.float64)
    if len(set(prompts)) < _LEAST_PROMPTS:
        why = f"{len(set(prompts))} prompts in both audits; need {_LEAST_PROMPTS}"
        return [unmeasured("drift.mean", "the mean score", why)]
    level = (1 - bench.limits.confidence) / _TESTS
    middle = (scores_AT[0].min() + scores_AT[0].max()) / 2
    verdicts_AT = (scores_AT > middle).astype(np.float64)
    findings = [
        mean_moved((scores_AT, numbers_T), level),
        verdicts_moved((verdicts_AT, numbers_T), level, middle),
    ]
    if bench.laboratory is None:
        return findings
    return [noted(each.name, each.tried, each.found, rows=each.rows) for each in findings]


def mean_moved(terms: Terms, level: float) -> Finding:
    """Judge the mean score by Wilcoxon's test on the prompts' sums (Wilcoxon 1945, Biometrics
    Bulletin 1:80)."""
    sums_AP, counts_P = by_prompt(terms)
    change_P = (sums_AP[1] - sums_AP[0]) / counts_P
    p = 1.0
    if np.any(np.abs(change_P) > _TOLERANCE):
        p = float(np.asarray(wilcoxon(change_P))[1])
    seen = (norm.ppf(1 - level / 2) + norm.ppf(_POWER)) * change_P.std() / math.sqrt(len(change_P))
    return Finding(
        name="drift.mean",
        tried="the mean score, Wilcoxon's test over prompts",
        rows=len(change_P),
        found=f"moved by {change_P.mean():+.3g}; p={p:.2g} for no change",
        value=float(change_P.mean()),
        power=f"a move by {seen:.2g}",
        verdict=_verdict(p, level),
    )


def verdicts_moved(terms: Terms, level: float, middle: float) -> Finding:
    """Judge the verdicts above and below the middle by McNemar's test."""
    tested = mcnemar(terms)
    assert tested is not None
    return Finding(
        name="drift.verdicts",
        tried=f"verdicts above and below {middle:.3g}, McNemar's test over prompts",
        rows=len(terms[1]),
        found=(
            f"{tested['only_b']} rose and {tested['only_a']} fell of {len(terms[1])};"
            f" p={tested['p']:.2g} for no change"
        ),
        value=float(tested["only_a"] + tested["only_b"]),
        power=f"{math.ceil(math.log2(2 / level))} to one side",
        verdict=_verdict(tested["p"], level),
    )


def _verdict(p: float, level: float) -> Verdict:
    return "fail" if p < level else "pass"


def differs(before: float | None, now: float | None) -> bool:
    """Return whether two scores differ."""
    if before is None or now is None:
        return before is not now
    return abs(before - now) > _TOLERANCE


def _example(before: float | None, now: float | None) -> Example:
    return Example(prompt="", response="", score=now, note=f"before: {before}")
