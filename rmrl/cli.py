"""The console script `rmrl`: `rmrl train ...` is `python -m rmrl.main_ppo ...`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rmrl import __version__
from rmrl.columns import aligned
from rmrl.exit import ends_with_its_reader
from rmrl.registry import Registry, did_you_mean
from rmrl.usage import purpose_of

_ENTRIES = {
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
}
COMMANDS: Registry[Callable[[Sequence[str]], int]] = Registry("command", _ENTRIES)


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Dispatch to an entry; return its exit code (2 for an unknown command)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] == "--version":
        print(f"rmrl {__version__}")
        return 0
    command = words[0]
    if command not in COMMANDS:
        print(
            f"rmrl: nothing named '{command}'{did_you_mean(command, list(COMMANDS))}",
            file=sys.stderr,
        )
        return 2
    return COMMANDS[command](words[1:])


def _overview() -> str:
    """Return the commands with the purpose that each entry states; none is imported."""
    rows: list[tuple[str, str]] = []
    for name, place in _ENTRIES.items():
        file = Path(__file__).with_name(f"{place.partition(':')[0].rpartition('.')[2]}.py")
        doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        rows.append((name, purpose_of(doc)))
    return "\n".join(
        [
            "rmrl <command> [key=value ...]: score responses with many rewards, and train on them",
            "",
            "    rmrl score reward.models=[length] data.files=rows.jsonl out=scored.jsonl",
            "",
            *aligned(rows),
            "",
            "rmrl <command> --help: its keys and an example; rmrl --version",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
