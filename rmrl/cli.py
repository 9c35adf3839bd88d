"""The console script `rmrl`: `rmrl train ...` is `python -m rmrl.main_ppo ...`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rmrl.exit import ends_with_its_reader
from rmrl.registry import Registry, did_you_mean

COMMANDS: Registry[Callable[[Sequence[str]], int]] = Registry(
    "command",
    {
        "train": "rmrl.main_ppo:main",
        "score": "rmrl.main_score:main",
        "serve": "rmrl.main_serve:main",
        "eval": "rmrl.main_eval:main",
        "calibrate": "rmrl.main_calibrate:main",
        "compare": "rmrl.main_compare:main",
        "check": "rmrl.main_check:main",
        "doctor": "rmrl.main_doctor:main",
        "show": "rmrl.main_show:main",
        "report": "rmrl.main_report:main",
        "cache": "rmrl.main_cache:main",
        "export": "rmrl.main_export:main",
        "migrate": "rmrl.main_migrate:main",
    },
)


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Dispatch to an entry; return its exit code (2 for an unknown command)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(
            f"usage: rmrl <command> [key=value ...]\ncommands: {', '.join(COMMANDS)}\nrmrl train"
            " --help lists the keys"
        )
        return 0
    command = words[0]
    if command not in COMMANDS:
        print(
            f"rmrl: nothing named '{command}'{did_you_mean(command, list(COMMANDS))}",
            file=sys.stderr,
        )
        return 2
    return COMMANDS[command](words[1:])


if __name__ == "__main__":
    sys.exit(main())
