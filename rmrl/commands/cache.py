"""`rmrl cache`: verdicts that are kept on disk."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmrl.columns import aligned, middle_out
from rmrl.commands.command import FlagCommand, count
from rmrl.errors import ConfigError
from rmrl.rewards.cache.inventory import Inventory, PruneRule, opened

_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_PARTS = {
    "stats": "verdicts, sizes and hits per reward (the default)",
    "show": "the verdicts used last",
    "prune": "drop verdicts; without --yes only say which",
}
_MOST_CHARACTERS = 200
_MOST_OF_A_NAME = 30


class Cache(FlagCommand[argparse.Namespace, str]):
    """The exit code is 2 where the file is no cache, and 6 where it is damaged."""

    usage = "FILE [stats|show|prune]"
    examples = (
        "rmrl cache verdicts.sqlite stats",
        "rmrl cache verdicts.sqlite show --reward helpful --limit 5",
        "rmrl cache verdicts.sqlite prune --older-than 30d --max-gb 2",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file, and what to do with it."""
        parser.add_argument("file", help="the SQLite file of reward.cache.path")
        parser.set_defaults(what=_stats)
        what = parser.add_subparsers(metavar="stats|show|prune", prog="rmrl cache FILE")
        for (name, line), example in zip(_PARTS.items(), self.examples, strict=True):
            about = f"rmrl cache FILE {name}: {line}\n\n    {example}"
            what.add_parser(name, help=line, description=about, example=example)
        show, prune = what.choices["show"], what.choices["prune"]
        show.set_defaults(what=_show)
        show.add_argument("--reward", help="only of this reward")
        show.add_argument("--limit", type=count, default=10, help="how many (default 10)")
        prune = what.choices["prune"]
        prune.set_defaults(what=_prune)
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

    def parsed(self, parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
        """Parse; flags belong to what stands before them."""
        return parser.parse_args(words)

    def check(self, settings: argparse.Namespace) -> argparse.Namespace:
        """Refuse a pruning without a rule."""
        rules = [vars(settings).get(key) for key in ("older_than", "max_gb", "reward")]
        if settings.what is _prune and not any(rule is not None for rule in rules):
            raise ConfigError(
                "prune needs a rule for the verdicts to drop; give --older-than 30d, --max-gb 2,"
                " --reward NAME, or several of them"
            )
        return settings

    def run(self, checked: argparse.Namespace) -> str:
        """Look into the file, or drop verdicts."""
        with opened(Path(checked.file).expanduser()) as inventory:
            return "\n".join(checked.what(inventory, checked))

    def show(self, checked: argparse.Namespace, result: str) -> None:
        """Print what the file holds."""
        print(result)


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


def _stats(inventory: Inventory, options: argparse.Namespace) -> Iterator[str]:
    holdings = inventory.holdings()
    total = sum(holding.verdicts for holding in holdings)
    yield f"{options.file}: {total} verdicts in {size_text(inventory.file_bytes)}"
    rows = [("reward", "scorers", "verdicts", "size", "hits", "first stored", "last used")]
    for holding in holdings:
        rows.append(
            (
                _plain(holding.reward),
                str(holding.scorers),
                str(holding.verdicts),
                size_text(holding.size_bytes),
                str(holding.hits),
                _ago(holding.created),
                _ago(holding.last_used),
            )
        )
    if holdings:
        yield from aligned(rows, indent="")


def _show(inventory: Inventory, options: argparse.Namespace) -> list[str]:
    rows = [("reward", "key", "stored", "last used", "hits", "size")]
    answers = ["answer"]
    for verdict in inventory.newest(options.limit, reward=options.reward):
        rows.append(
            (
                middle_out(_plain(verdict.reward), _MOST_OF_A_NAME),
                verdict.key[:12],
                _ago(verdict.created),
                _ago(verdict.last_used),
                str(verdict.hits),
                size_text(verdict.size_bytes),
            )
        )
        answers.append(_plain(verdict.text))
    lines = aligned(rows, indent="")
    width = max(map(len, lines))
    return [f"{line.ljust(width)}  {answer}" for line, answer in zip(lines, answers, strict=True)]


def _prune(inventory: Inventory, options: argparse.Namespace) -> Iterator[str]:
    moment = None if options.older_than is None else time.time() - options.older_than
    condemned = inventory.condemned(
        PruneRule(unused_since=moment, max_bytes=options.max_gb, reward=options.reward)
    )
    total = sum(holding.verdicts for holding in inventory.holdings())
    before = inventory.file_bytes
    if condemned and not options.yes:
        yield (
            f"would drop {len(condemned)} of {total} verdicts; nothing was dropped: repeat it with"
            " --yes to do it"
        )
        return
    if condemned:
        inventory.drop(condemned)
    yield (
        f"dropped {len(condemned)} of {total} verdicts; {size_text(before)} before,"
        f" {size_text(inventory.file_bytes)} now"
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


def _plain(text: str) -> str:
    """Return a model's text without control characters, which would steer the terminal."""
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[: _MOST_CHARACTERS - 3]}..."
    return "".join(char if char.isprintable() else "\ufffd" for char in text)
