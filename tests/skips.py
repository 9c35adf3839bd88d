"""Skipped tests, each reason with its count, at the end of a run with CI=true.

With RMRL_CHECK_SKIPS=1 as well, as in .ci/run, a run fails where a reason is not in tests/skips.json,
or is given more often than there: a test that stops running anywhere is noticed. Take a row out, or
lower it, when fewer are skipped; a new row is for what that machine cannot have (a GPU, SGLang).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
TABLE = REPOSITORY / "tests" / "skips.json"


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Return why a test, or a whole file, is skipped; None where it is not, or was expected to
    fail."""
    if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return None
    reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    # Alike in every clone.
    reason = reason.replace(f"{REPOSITORY}/", "").replace(f"{REPOSITORY.parent}/", "../")
    return " ".join(reason.split())


def problems(counts: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """Return a sentence for each reason that is new, or given too often."""
    sentences: list[str] = []
    for reason, count in sorted(counts.items()):
        if count > allowed.get(reason, 0):
            sentences.append(f"{count} skipped, at most {allowed.get(reason, 0)}: {reason}")
    return sentences


class Skips:
    """A plugin for the process that reports: under xdist it gets the reports of all."""

    def __init__(self, allowed: Mapping[str, int] | None) -> None:
        self.allowed = allowed
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._count(report)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = reason_of(report)
        if reason is not None:
            self.counts[reason] += 1

    def _problems(self) -> list[str]:
        return [] if self.allowed is None else problems(self.counts, self.allowed)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._problems() and session.exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.counts:
            terminalreporter.section("skipped")
            for reason, count in sorted(self.counts.items()):
                terminalreporter.line(f"{count:5d}  {reason}")
        if self._problems():
            terminalreporter.section("skipped, and not in tests/skips.json", red=True)
            for sentence in self._problems():
                terminalreporter.line(sentence, red=True)


def register(config: pytest.Config, environment: Mapping[str, str]) -> None:
    """Add the plugin where the environment asks for it."""
    if environment.get("CI") != "true" or hasattr(config, "workerinput"):
        return
    allowed: dict[str, int] | None = None
    if environment.get("RMRL_CHECK_SKIPS") == "1":
        allowed = json.loads(TABLE.read_text(encoding="utf-8"))
    config.pluginmanager.register(Skips(allowed), "skips")
