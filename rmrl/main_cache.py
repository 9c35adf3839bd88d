"""Entry of `rmrl cache`: look into a cache of verdicts, and make it smaller.

rmrl cache verdicts.sqlite
rmrl cache verdicts.sqlite show --reward helpful --limit 5
rmrl cache verdicts.sqlite prune --older-than 30d --max-gb 2 [--reward helpful] [--yes]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmrl.errors import ConfigError
from rmrl.exit import ends_with_its_reader, exit_code
from rmrl.rewards.cache.inventory import Inventory, PruneRule, opened

_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_MOST_CHARACTERS = 200


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 ok, 2 mistyped, or the file is no cache, 6 the file is damaged."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as leaving:  # argparse has printed its sentence, or the help
        return int(leaving.code or 0)
    with exit_code() as code, opened(Path(options.file).expanduser()) as inventory:
        console = Console(width=None if sys.stdout.isatty() else 160)
        {"stats": _stats, "show": _show, "prune": _prune}[options.what or "stats"](
            inventory, options, console
        )
    return code.value


def age_s(text: str) -> float:
    """`30d` -> seconds; also m (minutes), h and w."""
    number, unit = text[:-1], text[-1:]
    try:
        seconds = float(number) * _UNITS_S[unit]
    except (ValueError, KeyError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not an age; give a number and a unit, such as 90m, 12h, 30d or 4w"
        )
    return seconds


def gigabytes(text: str) -> int:
    """`2` or `0.5` -> bytes."""
    try:
        size = float(text) * 2**30
    except ValueError:
        size = -1.0
    if not 0 <= size < float("inf"):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a size; give gigabytes as a number that is not negative, such as 2"
            " or 0.5"
        )
    return round(size)


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of rows; give a whole number of at least 1"
        )
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of `rmrl cache`."""
    parser = argparse.ArgumentParser(
        prog="rmrl cache", description="Look into a cache of verdicts, and make it smaller."
    )
    parser.add_argument("file", help="the SQLite file of reward.cache.path")
    what = parser.add_subparsers(dest="what", metavar="stats|show|prune")
    what.add_parser("stats", help="verdicts, sizes and hits per reward (the default)")
    show = what.add_parser("show", help="the verdicts used last")
    show.add_argument("--reward", help="only of this reward")
    show.add_argument("--limit", type=count, default=10, help="how many (default 10)")
    prune = what.add_parser("prune", help="drop verdicts; without --yes only say which")
    prune.add_argument(
        "--older-than", type=age_s, metavar="AGE", help="those unused for so long, e.g. 30d"
    )
    prune.add_argument(
        "--max-gb",
        type=gigabytes,
        help="the least recently used, until the file holds no more than this",
    )
    prune.add_argument("--reward", help="only of this reward; alone: all of it")
    prune.add_argument("--yes", action="store_true", help="do it")
    return parser


def _stats(inventory: Inventory, options: argparse.Namespace, console: Console) -> None:
    holdings = inventory.holdings()
    table = _table("reward", "scorers", "verdicts", "size", "hits", "first stored", "last used")
    for holding in holdings:
        row = (
            holding.scorers,
            holding.verdicts,
            size_text(holding.size_bytes),
            holding.hits,
            _ago(holding.created),
            _ago(holding.last_used),
        )
        table.add_row(_plain(holding.reward), *map(str, row))
    total = sum(holding.verdicts for holding in holdings)
    console.print(Text(f"{options.file}: {total} verdicts in {size_text(inventory.file_bytes)}"))
    if holdings:
        console.print(table)


def _show(inventory: Inventory, options: argparse.Namespace, console: Console) -> None:
    table = _table("reward", "key", "stored", "last used", "hits", "size", "answer")
    for verdict in inventory.newest(options.limit, reward=options.reward):
        row = (
            verdict.key[:12],
            _ago(verdict.created),
            _ago(verdict.last_used),
            str(verdict.hits),
            size_text(verdict.size_bytes),
        )
        table.add_row(_plain(verdict.reward), *row, _plain(verdict.text))
    console.print(table)


def _prune(inventory: Inventory, options: argparse.Namespace, console: Console) -> None:
    if options.older_than is None and options.max_gb is None and options.reward is None:
        raise ConfigError(
            "prune needs a rule for the verdicts to drop; give --older-than 30d, --max-gb 2,"
            " --reward NAME, or several of them"
        )
    moment = None if options.older_than is None else time.time() - options.older_than
    condemned = inventory.condemned(
        PruneRule(unused_since=moment, max_bytes=options.max_gb, reward=options.reward)
    )
    total = sum(holding.verdicts for holding in inventory.holdings())
    before = inventory.file_bytes
    if condemned and not options.yes:
        console.print(
            Text(
                f"would drop {len(condemned)} of {total} verdicts; nothing was dropped: repeat it"
                " with --yes to do it"
            )
        )
        return
    if condemned:
        inventory.drop(condemned)
    console.print(
        Text(
            f"dropped {len(condemned)} of {total} verdicts; {size_text(before)} before,"
            f" {size_text(inventory.file_bytes)} now"
        )
    )


def size_text(size_bytes: int) -> str:
    """1234567 -> 1.2 MB; as in reward.cache.max_gb, a MB is 2**20 bytes."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def _ago(moment: float) -> str:
    seconds = max(time.time() - moment, 0.0)
    for unit in ("w", "d", "h", "m"):
        if seconds >= 2 * _UNITS_S[unit]:
            return f"{seconds / _UNITS_S[unit]:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(
            column,
            overflow="fold" if column == "answer" else "ellipsis",
            no_wrap=column != "answer",
        )
    return table


def _plain(text: str) -> Text:
    """Text of a model, without control characters, which would steer the terminal, and never read
    as markup."""
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[: _MOST_CHARACTERS - 3]}..."
    unprintable = {ord(char): "\ufffd" for char in text if not char.isprintable()}
    return Text(text.translate(unprintable))


if __name__ == "__main__":
    sys.exit(main())
