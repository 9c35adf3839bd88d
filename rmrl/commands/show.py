"""`rmrl show`: responses with their scores in a terminal."""

from __future__ import annotations

import argparse
import pydoc
import sys
from pathlib import Path

from rmrl.commands.command import FlagCommand, count
from rmrl.errors import ConfigError


class Show(FlagCommand[argparse.Namespace, str]):
    """The first displays the first responses, the second the five lowest rewards on which two
    components differ. The third says where prompt and response stand, in a file that does not say
    it itself. The fourth lists the preset catalogue with licences and papers, the fifth the reward
    kinds. Conditions name columns: reward, <component>, status_<component>, step, ... (see
    --columns)."""

    usage = "FILE [flags]"
    examples = (
        "rmrl show runs/demo/smollm2/samples.jsonl",
        "rmrl show scored.parquet --where 'judge != rule' --worst 5",
        "rmrl show scored.csv 'data.columns={prompt: question, response: answer}'",
        "rmrl show presets",
        "rmrl show kinds",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the file and what to select in it."""
        parser.add_argument(
            "file",
            type=Path,
            metavar="FILE",
            help=(
                "samples.jsonl of a run, or a parquet, jsonl or csv file of rmrl score; presets:"
                " the catalogue; kinds: the kinds of rewards"
            ),
        )
        parser.add_argument(
            "words",
            nargs="*",
            default=[],
            metavar="data.columns={prompt: question}",
            help="names of the columns, as for rmrl score",
        )
        parser.add_argument(
            "--where",
            metavar="CONDITION",
            help="only responses for which it holds, e.g. 'judge != rule and reward < 0.5'",
        )
        parser.add_argument("--worst", type=count, metavar="N", help="the N lowest")
        parser.add_argument("--best", type=count, metavar="N", help="the N highest")
        parser.add_argument(
            "--by",
            default="reward",
            metavar="COLUMN",
            help="column that --worst and --best compare (default: %(default)s)",
        )
        parser.add_argument(
            "--rows",
            type=count,
            default=5,
            metavar="N",
            help="responses without --worst or --best (default: %(default)s)",
        )
        parser.add_argument("--full", action="store_true", help="do not shorten long texts")
        parser.add_argument(
            "--columns", action="store_true", help="list the columns that conditions may name"
        )

    def check(self, settings: argparse.Namespace) -> argparse.Namespace:
        """Refuse two selections."""
        if settings.worst is not None and settings.best is not None:
            raise ConfigError("--worst and --best are both given: give one of them")
        return settings

    def run(self, checked: argparse.Namespace) -> str:
        """Return the selected responses, or a list, as text."""
        from rmrl.offline.conditions import condition
        from rmrl.offline.scored_responses import names_of_words, page, responses, select

        if str(checked.file) in ("presets", "kinds") and not checked.file.exists():
            from rmrl.rewards.catalogue.listing import catalogue_text
            from rmrl.rewards.kinds.listing import kinds_text

            return catalogue_text() if str(checked.file) == "presets" else kinds_text()
        names = names_of_words(checked.words, "show")
        items = responses(checked.file, names)
        if checked.columns:
            return "\n".join(next(items).columns)
        chosen = select(
            items,
            where=condition(checked.where) if checked.where else None,
            by=checked.by,
            worst=checked.worst,
            best=checked.best,
            count=checked.rows,
        )
        for _ in items:  # a misspelt column shows at the end of the file
            if not names.some_unseen:
                break
        pages = [page(item, full=checked.full) for item in chosen]
        return "\n\n".join(pages) or "no response matches"

    def show(self, checked: argparse.Namespace, result: str) -> None:
        """Print the text, through a pager on a terminal."""
        if sys.stdout.isatty() and not checked.columns:
            pydoc.pager(result)
        else:
            print(result)
