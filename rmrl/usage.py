"""The short help of a command: its purpose, an example and the keys that people use."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

from rmrl.columns import aligned

_FLAGS = ("-h", "--help")


def purpose_of(doc: str | None) -> str:
    """Return the purpose of a command in one line: the first paragraph of its entry's docstring,
    behind the colon."""
    first = inspect.cleandoc(doc or "").partition("\n\n")[0]
    return " ".join(first.split()).partition(": ")[2].removesuffix(".")


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return whether the first flag of a command line is -h or --help."""
    flags = [text for text in arguments if text.startswith("-")]
    return bool(flags) and flags[0] in _FLAGS


def short_help(command: str, doc: str | None, keys: Mapping[str, str]) -> str:
    """Return the help of a command whose arguments are keys: purpose and examples of the entry's
    docstring, and `keys` with a line each."""
    examples = inspect.cleandoc(doc or "").partition("\n\n")[2].partition("\n\n")[0]
    lines = [
        f"rmrl {command} [key=value ...]: {purpose_of(doc)}",
        "",
        examples,
        "",
        *aligned(list(keys.items())),
        "",
        f"All keys with their values: rmrl {command} --cfg job; explained: docs/configuration.md",
    ]
    return "\n".join(lines)
