"""Hold the size of each room of the package: `python scripts/room_budgets.py [--record]`.

A room is a folder of rmrl/, and of rmrl/rewards/ each folder by itself. Its size is counted in Python
tokens without docstrings and comments, which neither the width of lines nor written-out loops move.
tests/room_budgets.json has the most that each room may have, and the largest share of lines that
check something. `--record` lowers these to what there is today and adds new rooms; it raises none.
To give a room more, edit the file, and say in the commit what the room gained.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rmrl"
RECORDED = ROOT / "tests" / "room_budgets.json"

NOT_COUNTED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
CHECK_NAMES = re.compile(r"check(?!point)|problem|refus")
"""Names of functions whose lines count as checks, beside the lines of `raise`."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a package."""

    tokens: dict[str, int]
    """Room -> tokens."""
    check_share: float
    """Share of all lines that belong to a check."""


def tokens_of(text: str) -> int:
    """Count the tokens of a Python file, without docstrings and comments."""
    docstring_lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node.value.value, str) and node.end_lineno is not None:
            docstring_lines.update(range(node.lineno, node.end_lineno + 1))
    return sum(
        token.type not in NOT_COUNTED and token.start[0] not in docstring_lines
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def check_lines_of(text: str) -> int:
    """Count the lines of functions that check, and of `raise` statements elsewhere."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_check = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and bool(
            CHECK_NAMES.search(node.name)
        )
        if is_check or isinstance(node, ast.Raise):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def room_of(path: Path) -> str:
    """Name the room of a file, by its place below the package."""
    folders = path.parts[:-1]
    if not folders:
        return "top level"
    depth = 2 if folders[0] == "rewards" else 1
    return "/".join(folders[:depth])


def measure(package: Path) -> Sizes:
    """Measure every Python file of a package."""
    tokens: Counter[str] = Counter()
    lines = 0
    check_lines = 0
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tokens[room_of(path.relative_to(package))] += tokens_of(text)
        lines += len(text.splitlines())
        check_lines += check_lines_of(text)
    return Sizes(dict(sorted(tokens.items())), check_lines / max(lines, 1))


def over_budget(sizes: Sizes, recorded: dict[str, Any]) -> list[str]:
    """Return one sentence for each limit that is passed, and for each room without one."""
    problems: list[str] = []
    for room, tokens in sizes.tokens.items():
        most = recorded["tokens"].get(room)
        if most is None:
            problems.append(f"{room}: {tokens} tokens and no budget; run --record")
        elif tokens > most:
            problems.append(f"{room}: {tokens} tokens, at most {most}")
    if sizes.check_share > recorded["check_share"]:
        problems.append(
            f"{sizes.check_share:.2%} of the lines are checks, at most"
            f" {recorded['check_share']:.2%}"
        )
    return problems


def lowered(sizes: Sizes, recorded: dict[str, Any]) -> dict[str, Any]:
    """Return the limits to record: today's sizes, where these are no larger than the limits."""
    tokens = {
        room: min(count, recorded["tokens"].get(room, count))
        for room, count in sizes.tokens.items()
    }
    # Rounded up, so that the share of today passes.
    share = min(round(sizes.check_share + 5e-5, 4), recorded["check_share"])
    return {"check_share": share, "tokens": tokens}


def main() -> None:
    """Print the sizes, or record them."""
    parser = argparse.ArgumentParser(description="Hold the size of each room of the package.")
    parser.add_argument("--record", action="store_true", help="write tests/room_budgets.json")
    arguments = parser.parse_args()
    sizes = measure(PACKAGE)
    recorded: dict[str, Any] = {"check_share": 1.0, "tokens": {}}
    if RECORDED.exists():
        recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    if arguments.record:
        text = json.dumps(lowered(sizes, recorded), indent=1)
        RECORDED.write_text(text + "\n", encoding="utf-8")
    for room, tokens in sizes.tokens.items():
        print(f"{tokens:8,d}  {room}")
    print(f"{sum(sizes.tokens.values()):8,d}  in all; {sizes.check_share:.2%} of the lines check")


if __name__ == "__main__":
    main()
