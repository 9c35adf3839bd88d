"""Run the checks one after another within the budget, and write the report."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rmrl.audit.audit_rows import Row, has_labels
from rmrl.audit.check_audit import CheckedAudit
from rmrl.audit.checks import CHECKS
from rmrl.audit.checks.bench import Bench, Check
from rmrl.audit.finding import Finding, Limits, Verdict, unmeasured, verdict_of
from rmrl.audit.labelling import chosen
from rmrl.audit.laboratory import Laboratory
from rmrl.audit.subject import Budget, OverBudgetError, Subject
from rmrl.clock import Clock
from rmrl.cluster.watch import unless_lost
from rmrl.offline.open_scorer import open_scorer

_log = logging.getLogger(__name__)

_MEASURED = 8
"""Responses on which the seconds of one are measured."""
_LEAST_ROWS = 6
_BATCHES = 12
"""A batch takes at most one part in so many of the budget."""
_SHARE = 0.7
"""Part of the seconds that the plan uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What an audit found."""

    label: str
    date: str
    rows: int
    """Rows that each check was tried on."""
    scored: int
    seconds: float
    findings: Mapping[str, Sequence[Finding]]
    """By check, in order."""
    scores: Mapping[str, float | None]
    """Key of a response -> its score, for the next audit."""
    to_label: Sequence[Mapping[str, Any]] = ()
    """Responses for the page for labelling, where people have labelled none."""

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Check -> its verdict."""
        return {name: verdict_of(findings) for name, findings in self.findings.items()}

    def failed(self, required: Sequence[str]) -> list[str]:
        """Return the checks that failed, and required ones that did not pass."""
        verdicts = self.verdicts
        return [
            name
            for name in verdicts
            if verdicts[name] == "fail" or (name in required and verdicts[name] != "pass")
        ]

    def as_json(self) -> dict[str, Any]:
        """Return everything for audit.json."""
        checks: dict[str, Any] = {}
        for name, findings in self.findings.items():
            checks[name] = {
                "verdict": verdict_of(findings),
                "findings": [asdict(finding) for finding in findings],
            }
        return {
            "reward": self.label,
            "date": self.date,
            "rows": self.rows,
            "responses": self.scored,
            "seconds": round(self.seconds, 2),
            "checks": checks,
            "scores": self.scores,
        }


def run_audit(checked: CheckedAudit, *, clock: Clock) -> Result:
    """Run all checks. Raises what scoring raises."""
    return asyncio.run(_run(checked, clock))


async def _run(checked: CheckedAudit, clock: Clock) -> Result:
    settings = checked.config.audit
    budget = Budget(clock, settings.budget_s, settings.max_responses)
    async with open_scorer(checked.scoring) as scorer:
        subject = Subject(scorer, checked.scoring, budget)
        limits = Limits(settings.limit, settings.confidence, settings.seed)
        bench = Bench(
            settings=settings,
            subject=subject,
            rows=checked.rows,
            all_rows=checked.rows,
            limits=limits,
            laboratory=Laboratory.of(subject.specs),
            made=checked.made,
            earlier=checked.earlier,
            out=checked.out,
        )
        bench.rows = await unless_lost(planned(bench, checked))
        findings = {
            name: await unless_lost(_findings(CHECKS[name](), bench)) for name in checked.checks
        }
        return Result(
            label=subject.label,
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            rows=len(bench.rows),
            scored=budget.scored,
            seconds=budget.spent_s,
            findings=findings,
            scores=subject.scores(),
            to_label=await unless_lost(_to_label(bench, findings)),
        )


async def _to_label(
    bench: Bench, findings: Mapping[str, Sequence[Finding]]
) -> list[dict[str, Any]]:
    """Return responses that are worth a label, [] where people have labelled some, or no seconds
    are left."""
    if bench.made or has_labels(bench.rows) or not bench.settings.labelling_rows:
        return []
    try:
        cases = [row.case(text) for row in bench.rows for text in row.responses]
        scores = await bench.subject.score(cases)
    except OverBudgetError:
        return []
    values = [score.value for score in scores]
    return chosen(bench.rows, values, findings, bench.settings.labelling_rows)


async def planned(bench: Bench, checked: CheckedAudit) -> Sequence[Row]:
    """Measure one response's seconds, print the plan, and return the rows that it has room
    for."""
    settings = bench.settings
    subject = bench.subject
    cases = [row.case(text) for row in bench.rows for text in row.responses][:_MEASURED]
    await subject.score_afresh(cases)  # the first call starts processes
    subject.budget.begin()
    await subject.score_afresh(cases)
    seconds = subject.budget.spent_s / max(len(cases), 1)
    per_row = sum(CHECKS[name].responses_per_row for name in checked.checks)
    most = min(settings.rows, len(bench.rows))
    room = subject.budget.left_s * _SHARE / max(seconds * per_row, 1e-9)
    if settings.max_responses is not None:
        room = min(room, (settings.max_responses - subject.budget.scored) / per_row)
    count = max(min(most, int(room)), min(_LEAST_ROWS, most))
    subject.batch = min(
        max(int(settings.budget_s / _BATCHES / max(seconds, 1e-9)), 1), subject.batch
    )
    expected = seconds * per_row * count
    _log.info(
        f"{1000 * seconds:.3g} ms a response: {len(checked.checks)} checks on {count} of"
        f" {len(bench.rows)} rows, at most {per_row * count:,} responses, about"
        f" {expected:.0f} of {settings.budget_s:g} s (audit.budget_s)"
    )
    if expected > subject.budget.left_s:
        _log.warning(
            f"about {expected:.0f} s are needed and {subject.budget.left_s:.0f} are left: the last"
            " checks will not be measurable. Give a larger audit.budget_s, or name fewer in"
            " audit.checks"
        )
    return bench.rows[:count]


async def _findings(check: Check, bench: Bench) -> list[Finding]:
    try:
        return await check.run(bench)
    except OverBudgetError as error:
        return [unmeasured(f"{check.name}.budget", "", str(error))]
