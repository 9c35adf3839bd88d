"""Does the same response get the same score, whatever else happens?

A rule is called under conditions that differ in one thing from a first run, in which every row is
called alone: as if no row had been before it. A model is asked twice, in another order and in other
batches.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.finding import Finding, Trial, unmeasured
from rmrl.audit.laboratory import Condition, Laboratory
from rmrl.audit.subject import Case, Score

TOLERANCE = 1e-6
"""Differences up to this are rounding."""
_OF_MODELS = 1e-2
"""The same for scores that a model computes in batches."""
_MOST_ROWS = 16
_OF_ALL = ("again", "order")
"""What a model is asked for, too."""
_WHY_NOT = "no seconds were left, or the reward compares responses"
_SHARED = 4
_SHARE = 0.3
"""Part of the budget for a rule in the laboratory."""
_SHIFT_S = 201 * 24 * 3600 + 11 * 3600 + 37 * 60 + 1
"""Another season, weekday, hour and minute."""
_DAY_S = 30 * 3600
TRIED = {
    "again": "the same rows again, each alone",
    "random numbers": "another seed of random and numpy",
    "hash seed": "another process, with another hash seed",
    "clock": "201 days and 11 hours later, by a clock of our own",
    "next day": "30 hours later",
    "earlier rows": "after the other rows, in one process",
    "order": "after the other rows, in the opposite order",
    "batches": "alone, instead of with the responses beside it",
}


class Repeatability:
    """A score's largest difference, by cause."""

    name: ClassVar[str] = "repeatability"
    needs: ClassVar[str] = "any rows"
    responses_per_row: ClassVar[int] = 8
    probe: ClassVar[Probe] = Probe(
        code="seen = {}\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    right = float(solution_str.endswith(ground_truth))\n"
        "    return seen.setdefault(ground_truth, right)\n"
    )

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it."""
        cases = await mixed_cases(bench)
        if not cases:
            return [unmeasured("repeatability.again", TRIED["again"], "there are no responses")]
        if bench.laboratory is None:
            runs, tolerance = await _of_model(bench, cases), _OF_MODELS
        else:
            runs = await asyncio.to_thread(_of_rule, bench.laboratory, cases, bench.seconds(_SHARE))
            runs |= await _of_batches(bench, cases)
            tolerance = TOLERANCE
        if "first" not in runs:
            why = "the rule could not be called in a process of its own, or no seconds are left"
            return [unmeasured("repeatability.again", TRIED["again"], why)]
        return findings(bench, cases, runs, tolerance)


async def mixed_cases(bench: Bench) -> list[Case]:
    """Return right, wrong and other responses, some to the same prompt, and some texts to several
    prompts."""
    goldens = await bench.goldens()
    cases: list[Case] = []
    for golden in goldens.rows[:_MOST_ROWS]:
        cases += [golden.row.case(golden.right_text), golden.row.case(golden.wrong_text)]
    rows = [row for row in bench.rows[:_MOST_ROWS] if row.responses]
    for number, row in enumerate(rows):
        cases += map(row.case, row.responses[:2])
        if number < _SHARED:
            cases += map(row.case, rows[number - 1].responses[:2])
    return list({case.key: case for case in cases}.values())


def _of_rule(
    laboratory: Laboratory, cases: Sequence[Case], seconds: float
) -> dict[str, list[float]]:
    order = tuple(range(len(cases)))
    backwards = order[::-1]
    conditions = [
        Condition(name="first", order=order),
        Condition(name="earlier rows", order=order, alone=False),
        Condition(name="order", order=backwards, alone=False),
        Condition(name="random numbers", order=order, seed=1),
        Condition(name="again", order=order),
        Condition(name="hash seed", order=order, hash_seed=1),
        Condition(name="clock", order=order, shift_s=_SHIFT_S),
        Condition(name="next day", order=order, shift_s=_DAY_S),
    ]
    answers = laboratory.answers(cases, conditions, timeout_s=seconds)
    runs: dict[str, list[float]] = {}
    for condition in conditions:
        if condition.name not in answers:
            continue  # no seconds were left
        verdicts = zip(condition.order, answers[condition.name], strict=False)
        values = {position: answer.value for position, answer in verdicts}
        runs[condition.name] = np.asarray(list(map(values.get, order)), dtype=np.float64).tolist()
    return runs


async def _of_model(bench: Bench, cases: Sequence[Case]) -> dict[str, list[float]]:
    subject = bench.subject
    first = await subject.score_afresh(cases)
    again = await subject.score_afresh(cases)
    backwards = (await subject.score_afresh(cases[::-1]))[::-1]
    runs = {"first": first, "again": again, "order": backwards}
    values: dict[str, list[float]] = {
        name: [score.value for score in scores] for name, scores in runs.items()
    }
    return values | await _of_batches(bench, cases)


async def _of_batches(bench: Bench, cases: Sequence[Case]) -> dict[str, list[float]]:
    """Return a few rows' scores together and alone, the other rows' as they are."""
    few = list(cases[: 2 * _MOST_ROWS])
    if bench.subject.whole_groups:
        return {}  # responses that are compared have no score alone
    together = await bench.subject.score_afresh(few)
    alone = await bench.subject.score_afresh(few, batch=1)
    return {
        "together": [score.value for score in together],
        "batches": [score.value for score in alone],
    }


def findings(
    bench: Bench, cases: Sequence[Case], runs: Mapping[str, Sequence[float]], tolerance: float
) -> list[Finding]:
    """Return a finding per condition. One is not counted where a simpler one explains it."""
    several: list[Finding] = []
    explained: set[int] = set()
    for name, tried in TRIED.items():
        if name not in runs:
            if name in _OF_ALL or bench.laboratory is not None:
                several.append(unmeasured(f"repeatability.{name}", tried, _WHY_NOT))
            continue
        base = runs["together" if name == "batches" and "together" in runs else "first"]
        if name == "order":
            base = runs.get("earlier rows", base)
        trials: list[Trial] = []
        for position, (case, one, other) in enumerate(zip(cases, base, runs[name], strict=False)):
            if position in explained or (math.isnan(one) and math.isnan(other)):
                continue
            differs = not abs(one - other) <= tolerance
            score = Score(value=other)
            trials.append(Trial(differs, case.example(score, f"{tried}: before {one:g}")))
            if differs:
                explained.add(position)
        changes_N = np.abs(np.subtract(base, runs[name]))
        largest = float(np.nanmax(np.append(changes_N, 0.0)))
        several.append(
            bench.limits.never(
                f"repeatability.{name}",
                tried,
                trials,
                fault=f"differ (largest difference {largest:.3g})",
            )
        )
    return several
