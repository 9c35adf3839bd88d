"""The audit on the console, within 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rmrl.audit.finding import Finding, verdict_of
from rmrl.audit.run_audit import Result
from rmrl.columns import WIDTH, aligned, middle_out

_FOUND = 46


def console(result: Result) -> str:
    """Return a line per check, the findings that failed with an example each, and what was not
    measurable."""
    rows = [("check", "verdict", "rows", "found", "would have seen")]
    for name, findings in result.findings.items():
        rows.append(line_of(name, findings))
    lines = [f"{result.label}: {result.rows} rows, {result.scored:,} responses", *aligned(rows)]
    for findings in result.findings.values():
        for finding in findings:
            if finding.verdict == "fail":
                lines += failure(finding)
    return "\n".join([*lines, "", summary(result)])


def summary(result: Result) -> str:
    """Return the verdict in one line."""
    verdicts = list(result.verdicts.values())
    parts = [
        f"{verdicts.count(verdict)} {verdict}"
        for verdict in ("fail", "pass", "not measurable")
        if verdict in verdicts
    ]
    return f"{', '.join(parts)}, in {result.seconds:.0f} s"


def line_of(name: str, findings: Sequence[Finding]) -> tuple[str, str, str, str, str]:
    """Return a check's row: its worst finding speaks for it."""
    verdict = verdict_of(findings)
    chosen = [finding for finding in findings if finding.verdict == verdict]
    first = max(chosen, key=_badness)
    text = first.found
    if verdict == "fail":
        failed = sum(finding.verdict == "fail" for finding in findings)
        text = f"{failed} of {len(findings)} fail, {first.name.partition('.')[2]}: {first.found}"
    elif verdict == "pass":
        passed = sum(finding.verdict == "pass" for finding in findings)
        text = f"{passed} of {len(findings)} findings pass, the others decide nothing"
        if passed == len(findings):
            text = f"all {passed} findings pass"
    rows = max(finding.rows for finding in findings)
    return (
        name,
        verdict,
        str(rows) if rows else "-",
        middle_out(" ".join(text.split()), _FOUND),
        middle_out(first.power or "-", 16),
    )


def _badness(finding: Finding) -> float:
    return finding.value or 0.0


def failure(finding: Finding) -> list[str]:
    """Return the lines on a failed finding, with an example."""
    interval = ""
    if finding.low is not None and finding.high is not None:
        interval = f" ({100 * finding.low:.0f} .. {100 * finding.high:.0f} %)"
    lines = ["", _fit(f"FAIL {finding.name}: {finding.found}{interval}")]
    lines.append(_fit(f"  tried: {finding.tried}"))
    for example in finding.examples[:1]:
        score = "no score" if example.score is None else f"score {example.score:g}"
        lines.append(_fit(f"  e.g. {' '.join(example.response.split())!r}"))
        if example.reference:
            lines.append(_fit(f"       reference {' '.join(example.reference.split())!r}"))
        lines.append(_fit(f"       {score}; {' '.join(example.note.split())}"))
    return lines


def _fit(line: str) -> str:
    return middle_out(line, WIDTH)
