"""One thing that a check tried: on how many rows, what it found, and the smallest fault it would
have seen.

A finding fails where the whole interval for the share with a fault lies above the limit. Its power
is the true share at which that happens four times in five.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scipy.stats import beta, binomtest

from rmrl.evaluation.measures.shares import share

Verdict = Literal["pass", "fail", "not measurable", "note"]
"""note: a figure without a limit, which decides nothing."""

LEAST_ROWS = 5
"""Rows below which a share says nothing."""
MOST_EXAMPLES = 3
_SEEN = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One response that shows a fault."""

    prompt: str
    response: str
    reference: str = ""
    score: float | None = None
    note: str = ""
    """What the score is to be compared with, or the error."""
    read: str = ""
    """A judge's input."""
    wrote: str = ""
    """A judge's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """See the module's text. `name` is <check>.<what>, and stays the same in later versions."""

    name: str
    tried: str
    found: str
    verdict: Verdict
    rows: int = 0
    value: float | None = None
    low: float | None = None
    high: float | None = None
    power: str = ""
    examples: tuple[Example, ...] = ()
    curve: Mapping[str, float] = field(default_factory=dict)
    """Points of a curve, for programs."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One row on which a fault was looked for."""

    faulty: bool
    example: Example


@dataclass(frozen=True, slots=True)
class Limits:
    """The accepted share with a fault, and the coverage for intervals."""

    limit: float
    confidence: float
    seed: int = 1

    def rate(self, name: str, tried: str, trials: Sequence[Trial], *, fault: str) -> Finding:
        """Judge the share with a fault. `fault`: what a faulty row is, e.g. "accepted"."""
        count = len(trials)
        if count < LEAST_ROWS:
            return unmeasured(name, tried, f"{count} rows allow it; need {LEAST_ROWS}", rows=count)
        faulty = [trial.example for trial in trials if trial.faulty]
        measured = self.share([trial.faulty for trial in trials])
        verdict: Verdict = "pass"
        if measured["low"] > self.limit:
            verdict = "fail"
        return Finding(
            name=name,
            tried=tried,
            rows=count,
            found=f"{len(faulty)} of {count} {fault}",
            value=measured["value"],
            low=measured["low"],
            high=measured["high"],
            power=f"{100 * self.smallest_share(count):.0f} % of rows",
            verdict=verdict,
            examples=tuple(faulty[:MOST_EXAMPLES]),
        )

    def never(self, name: str, tried: str, trials: Sequence[Trial], *, fault: str) -> Finding:
        """Judge something that may not happen once."""
        if not trials:
            return unmeasured(name, tried, "no row allows it")
        faulty = [trial.example for trial in trials if trial.faulty]
        measured = self.share([trial.faulty for trial in trials])
        verdict: Verdict = "fail" if faulty else "pass"
        return Finding(
            name=name,
            tried=tried,
            rows=len(trials),
            found=f"{len(faulty)} of {len(trials)} {fault}",
            value=measured["value"],
            low=measured["low"],
            high=measured["high"],
            power=f"{100 * (1 - (1 - _SEEN) ** (1 / len(trials))):.0f} % of rows",
            verdict=verdict,
            examples=tuple(faulty[:MOST_EXAMPLES]),
        )

    def share(self, faults: Sequence[bool]) -> dict[str, float]:
        """Return the share as {value, low, high}."""
        credits = list(map(float, faults))
        return share(credits, confidence=self.confidence, seed=self.seed)

    def smallest_share(self, count: int) -> float:
        """Return the share with a fault at which `rate` fails with probability 0.8."""
        for faulty in range(1, count + 1):
            interval = binomtest(faulty, count).proportion_ci(self.confidence, method="wilson")
            if interval.low > self.limit:
                return float(beta.ppf(_SEEN, faulty, count - faulty + 1))
        return 1.0


def noted(name: str, tried: str, found: str, *, rows: int = 0) -> Finding:
    """Return a figure that decides nothing."""
    return Finding(name=name, tried=tried, found=found, verdict="note", rows=rows)


def unmeasured(name: str, tried: str, why: str, *, rows: int = 0) -> Finding:
    """Return a finding that these rows do not allow."""
    return Finding(name=name, tried=tried, found=why, verdict="not measurable", rows=rows)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Return a check's verdict: one failure fails it, and without anything that passed it is not
    measurable."""
    verdicts = {finding.verdict for finding in findings}
    if "fail" in verdicts:
        return "fail"
    return "pass" if "pass" in verdicts else "not measurable"
