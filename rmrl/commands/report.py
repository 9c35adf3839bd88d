"""`rmrl report`: a run or a scored file as one HTML page."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from rmrl.commands.command import FlagCommand
from rmrl.config.command_line import names_columns
from rmrl.errors import ConfigError, DataError
from rmrl.report import MOST_CHARACTERS, MOST_SAMPLES

_OUT = "out="
_log = logging.getLogger(__name__)


class Report(FlagCommand[argparse.Namespace, Path]):
    """With two runs or files the page shows them side by side. Where a file does not say itself
    where prompt and response stand, data.columns={prompt: question, response: answer} does."""

    usage = "SOURCE [SOURCE] [flags]"
    examples = (
        "rmrl report runs/demo/smollm2",
        "rmrl report scored.parquet --out scored.html",
        "rmrl report runs/demo/smollm2 runs/demo/other --out both.html",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the page's sources and sizes."""
        parser.add_argument(
            "all_words",
            nargs="+",
            metavar="SOURCE",
            help="folder of a run, or a parquet, jsonl or csv file of rmrl score; two are compared."
            " data.columns={prompt: question} names columns, as for rmrl score",
        )
        parser.add_argument(
            "--out",
            type=Path,
            metavar="FILE",
            help="default: report.html in the run's folder, <name>.html beside a file; or out=FILE",
        )
        parser.add_argument(
            "--config",
            type=Path,
            metavar="YAML",
            help="the section reward of a scored file: weights, transforms and gates are explained"
            " with it",
        )
        parser.add_argument(
            "--samples",
            type=int,
            default=MOST_SAMPLES,
            metavar="N",
            help="responses that the page lists, of each source (default: %(default)s); the"
            " statistics are those of all",
        )
        parser.add_argument(
            "--characters",
            type=int,
            default=MOST_CHARACTERS,
            metavar="N",
            help="of a text; longer ones lose their middle (default: %(default)s)",
        )

    def check(self, settings: argparse.Namespace) -> argparse.Namespace:
        """Tell files from column names."""
        words = settings.all_words
        settings.words = [word for word in words if names_columns(word)]
        others = [word for word in words if not names_columns(word)]
        settings.paths = [Path(word) for word in others if not word.startswith(_OUT)]
        for word in others:
            if word.startswith(_OUT):
                settings.out = Path(word.removeprefix(_OUT))
        if len(settings.paths) not in (1, 2):
            raise ConfigError(
                f"saw {len(settings.paths)} runs or files: give one, or two to compare"
            )
        if settings.samples < 1 or settings.characters < 2:
            raise ConfigError(
                f"--samples={settings.samples} --characters={settings.characters}: give positive"
                " numbers, at least 2 characters"
            )
        return settings

    def run(self, checked: argparse.Namespace) -> Path:
        """Write the page."""
        from rmrl.files import write_whole
        from rmrl.offline.scored_responses import names_of_words
        from rmrl.report.page import render
        from rmrl.report.sources import sources

        names = names_of_words(checked.words, "report")
        chosen = sources(checked.paths, config=checked.config, names=names)
        first = checked.paths[0]
        if checked.out:
            out = checked.out
        elif first.is_dir():
            out = first / "report.html"
        else:
            out = first.with_suffix(".html")
        page = render(chosen, most_samples=checked.samples, most_characters=checked.characters)
        try:
            write_whole(out, page)
        except OSError as error:
            raise DataError(f"{out} cannot be written ({error}); give another --out") from error
        return out

    def show(self, checked: argparse.Namespace, result: Path) -> None:
        """Say where the page is."""
        size = result.stat().st_size / 2**20
        _log.info("wrote %s (%.1f MiB); open it in a browser", result, size)
