"""Entry of `rmrl doctor`: is this machine ready for rmrl?

    rmrl doctor
    rmrl doctor packages storage

Looks at versions, memory and limits, /dev/shm and disks, GPUs, collectives, vLLM and Ray. One line
per finding, and what to type where something is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from rmrl.doctor import CHECKS, NAMES, findings_of
from rmrl.doctor.finding import Finding
from rmrl.errors import ConfigError
from rmrl.exit import ends_with_its_reader, exit_code
from rmrl.registry import did_you_mean

_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}
_PROBLEMS = 2


def run(names: Sequence[str], *, as_json: bool) -> int:
    """Print the findings of the named checks; return the number of problems. Raises ConfigError for
    an unknown name."""
    for name in names:
        if name not in CHECKS:
            raise ConfigError(f"nothing to check is named '{name}'{did_you_mean(name, NAMES)}")
    console = Console(highlight=False, soft_wrap=True)
    findings: list[Finding] = []
    for name in names:
        for finding in findings_of(name):
            findings.append(finding)
            if not as_json:
                _print(console, finding)
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    elif problems:
        console.print(f"problems: {problems}", style=_STYLES["problem"])
    else:
        console.print("ready", style=_STYLES["ok"])
    return problems


def _print(console: Console, finding: Finding) -> None:
    line = Text(f"{finding.level:<8}", style=_STYLES[finding.level])
    line.append(f" {finding.text}", style="default")
    if finding.advice:
        line.append(f"; {finding.advice}", style="default")
    console.print(line)


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 without problems, 2 with one or for an unknown check."""
    parser = argparse.ArgumentParser(
        prog="rmrl doctor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "checks",
        nargs="*",
        metavar="CHECK",
        help=f"default: all of them: {', '.join(NAMES)}",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    given = parser.parse_args(sys.argv[1:] if arguments is None else list(arguments))
    problems = 0
    with exit_code() as code:
        problems = run(given.checks or NAMES, as_json=given.json)
    return code.value or (_PROBLEMS if problems else 0)


if __name__ == "__main__":
    sys.exit(main())
