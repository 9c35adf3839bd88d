"""`rmrl doctor`: is this machine ready for rmrl?"""

from __future__ import annotations

import argparse
import dataclasses
import json

from rich.console import Console
from rich.text import Text

from rmrl.commands.command import FlagCommand
from rmrl.doctor import CHECKS, NAMES, findings_of
from rmrl.doctor.finding import Finding
from rmrl.errors import ConfigError
from rmrl.registry import did_you_mean

_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


class Doctor(FlagCommand[argparse.Namespace, list[Finding]]):
    """Looks at versions, memory and limits, /dev/shm and disks, GPUs, collectives, vLLM and Ray.
    One line per finding, and what to type where something is wrong. The exit code is 2 where
    something is."""

    usage = "[CHECK ...] [--json]"
    examples = ("rmrl doctor", "rmrl doctor packages storage")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the checks' names, and --json."""
        parser.add_argument(
            "checks",
            nargs="*",
            metavar="CHECK",
            help=f"default: all of them: {', '.join(NAMES)}",
        )
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")

    def check(self, settings: argparse.Namespace) -> argparse.Namespace:
        """Refuse names that no check has."""
        for name in settings.checks:
            if name not in CHECKS:
                raise ConfigError(f"nothing to check is named '{name}'{did_you_mean(name, NAMES)}")
        return settings

    def run(self, checked: argparse.Namespace) -> list[Finding]:
        """Run the checks. Each finding is printed at once, since some checks take seconds."""
        console = Console(highlight=False, soft_wrap=True)
        findings: list[Finding] = []
        for name in checked.checks or NAMES:
            for finding in findings_of(name):
                findings.append(finding)
                if not checked.json:
                    _print(console, finding)
        return findings

    def show(self, checked: argparse.Namespace, result: list[Finding]) -> int:
        """Print the verdict. Return 2 where there is a problem."""
        problems = sum(finding.level == "problem" for finding in result)
        console = Console(highlight=False, soft_wrap=True)
        if checked.json:
            print(json.dumps([dataclasses.asdict(finding) for finding in result], indent=1))
        elif problems:
            console.print(f"problems: {problems}", style=_STYLES["problem"])
        else:
            console.print("ready", style=_STYLES["ok"])
        return 2 if problems else 0


def _print(console: Console, finding: Finding) -> None:
    line = Text(f"{finding.level:<8}", style=_STYLES[finding.level])
    line.append(f" {finding.text}", style="default")
    if finding.advice:
        line.append(f"; {finding.advice}", style="default")
    console.print(line)
