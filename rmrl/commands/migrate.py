"""`rmrl migrate`: verl's command lines as rmrl's."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rmrl.commands.command import FlagCommand
from rmrl.config.compat.migrate import Migrated, migrate, preamble, to_script
from rmrl.errors import ConfigError


class Migrate(FlagCommand[str, list[Migrated]]):
    """The differences follow the command as comments, so that `rmrl migrate run.sh > new.sh` writes
    a script. Settings without a counterpart in rmrl are left out and listed with what to use
    instead. The exit code is 2 then."""

    usage = "[SCRIPT]"
    examples = (
        "rmrl migrate run_grpo.sh          reads the script, runs nothing of it",
        "rmrl migrate < overrides.txt      a list of overrides, or a script",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the script."""
        parser.add_argument(
            "script", nargs="?", type=Path, help="shell script; left out: standard input"
        )

    def check(self, settings: argparse.Namespace) -> str:
        """Read the script."""
        path: Path | None = settings.script
        try:
            return sys.stdin.read() if path is None else path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{path}: {error}; give a shell script, or overrides on standard input"
            ) from error

    def run(self, checked: str) -> list[Migrated]:
        """Translate each command in the script."""
        return migrate(checked)

    def show(self, checked: str, result: list[Migrated]) -> int:
        """Print one command for each in the script. Return 2 where a setting is refused."""
        assignments = preamble(checked)
        print("\n\n".join(to_script(command, preamble=assignments) for command in result))
        return 2 if any(command.refused for command in result) else 0
