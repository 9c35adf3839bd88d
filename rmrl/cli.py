"""The console script `rmrl`: `rmrl train ...` is `python -m rmrl.main_ppo ...`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rmrl import __version__
from rmrl.columns import aligned
from rmrl.commands import COMMANDS, PURPOSES, command_named
from rmrl.exit import ends_with_its_reader
from rmrl.registry import did_you_mean


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return its exit code (2 for an unknown command)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] == "--version":
        print(f"rmrl {__version__}")
        return 0
    name = words[0]
    if name not in PURPOSES:
        print(f"rmrl: nothing named '{name}'{did_you_mean(name, list(COMMANDS))}", file=sys.stderr)
        return 2
    return command_named(name).main(words[1:])


def entry(name: str) -> Callable[..., int]:
    """Return `main` for a module that runs one command, `python -m rmrl.main_<name>`."""

    def run(arguments: Sequence[str] | None = None) -> int:
        return main([name, *(sys.argv[1:] if arguments is None else arguments)])

    return run


def _overview() -> str:
    return "\n".join(
        [
            "rmrl <command> [key=value ...]: score responses with many rewards, and train on them",
            "",
            "    rmrl score reward.models=[gsm8k] data.files=rows.jsonl out=scored.jsonl",
            "",
            *aligned(list(PURPOSES.items())),
            "",
            "rmrl <command> --help: its keys and an example; rmrl --version",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
