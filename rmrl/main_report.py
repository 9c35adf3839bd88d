"""Entry of `rmrl report`: a run, or a scored file, as one HTML page that needs no network.

    rmrl report runs/demo/smollm2
    rmrl report scored.parquet --out scored.html
    rmrl report runs/demo/smollm2 runs/demo/other --out both.html

With two runs or files the page shows them side by side. Where a file does not say itself where
prompt and response stand, data.columns={prompt: question, response: answer} does.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from rmrl.config.command_line import names_columns
from rmrl.exit import ends_with_its_reader, exit_code
from rmrl.report import MOST_CHARACTERS, MOST_SAMPLES

_log = logging.getLogger("rmrl.main_report")  # under python -m its __name__ is another


def run(given: argparse.Namespace) -> None:
    """Write the page."""
    from rmrl.errors import DataError
    from rmrl.files import write_whole
    from rmrl.offline.scored_responses import names_of_words
    from rmrl.report.page import render
    from rmrl.report.sources import sources

    names = names_of_words(given.words, "report")
    chosen = sources(given.paths, config=given.config, names=names)
    first = given.paths[0]
    if given.out:
        out = given.out
    elif first.is_dir():
        out = first / "report.html"
    else:
        out = first.with_suffix(".html")
    page = render(
        chosen,
        most_samples=given.samples,
        most_characters=given.characters,
    )
    try:
        write_whole(out, page)
    except OSError as error:
        raise DataError(f"{out} cannot be written ({error}); give another --out") from error
    size = out.stat().st_size / 2**20
    _log.info("wrote %s (%.1f MiB); open it in a browser", out, size)


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code, as that of training."""
    parser = argparse.ArgumentParser(
        prog="rmrl report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "all_words",
        nargs="+",
        metavar="RUN_OR_FILE",
        help="folder of a run, or a parquet, jsonl or csv file of rmrl score; two are compared."
        " data.columns={prompt: question} names columns, as for rmrl score",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="default: report.html in the run's folder, <name>.html beside a file",
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
    given = parser.parse_intermixed_args(sys.argv[1:] if arguments is None else list(arguments))
    given.words = []
    given.paths = []
    for word in given.all_words:
        if names_columns(word):
            given.words.append(word)
        else:
            given.paths.append(Path(word))
    if len(given.paths) not in (1, 2):
        parser.error("give one or two runs or files")
    if given.samples < 1 or given.characters < 2:
        parser.error("--samples and --characters: give positive numbers")
    with exit_code() as code:
        run(given)
    return code.value


if __name__ == "__main__":
    sys.exit(main())
