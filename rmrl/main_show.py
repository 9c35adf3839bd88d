"""Entry of `rmrl show`: page through the samples of a run or a scored file, or list what there is.

    rmrl show runs/demo/smollm2/samples.jsonl
    rmrl show scored.parquet --where 'judge != rule' --worst 5
    rmrl show scored.csv 'data.columns={prompt: question, response: answer}'
    rmrl show presets
    rmrl show kinds

The first displays the first responses, the second the five lowest rewards on which two components
differ. The third says where prompt and response stand, in a file that does not say it itself. The
fourth lists the catalogue of presets with licences and papers, the fifth the kinds of rewards.
Conditions name columns: reward, <component>, status_<component>, step, ... (see --columns).
"""

from __future__ import annotations

import argparse
import pydoc
import sys
from collections.abc import Sequence
from pathlib import Path

from rmrl.exit import ends_with_its_reader, exit_code


def run(options: argparse.Namespace) -> None:
    """Print the selected responses, or a list, through a pager on a terminal."""
    from rmrl.offline.conditions import condition
    from rmrl.offline.scored_responses import names_of_words, page, responses, select

    if str(options.file) in ("presets", "kinds") and not options.file.exists():
        from rmrl.rewards.catalogue.listing import catalogue_text
        from rmrl.rewards.kinds.listing import kinds_text

        _page(catalogue_text() if str(options.file) == "presets" else kinds_text())
        return
    names = names_of_words(options.words, "show")
    items = responses(options.file, names)
    if options.columns:
        print("\n".join(next(items).columns))
        return
    where = condition(options.where) if options.where else None
    chosen = select(
        items,
        where=where,
        by=options.by,
        worst=options.worst,
        best=options.best,
        count=options.rows,
    )
    for _ in items:  # a misspelt column shows at the end of the file
        if not names.some_unseen:
            break
    text = "\n\n".join(page(item, full=options.full) for item in chosen) or "no response matches"
    _page(text)


def _page(text: str) -> None:
    if sys.stdout.isatty():
        pydoc.pager(text)
    else:
        print(text)


@ends_with_its_reader
def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code, as that of training."""
    parser = argparse.ArgumentParser(
        prog="rmrl show", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help=(
            "samples.jsonl of a run, or a parquet, jsonl or csv file of rmrl score; presets: the"
            " catalogue; kinds: the kinds of rewards"
        ),
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="data.columns={prompt: question}",
        help="names of the columns, as for rmrl score",
    )
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        help="only responses for which it holds, e.g. 'judge != rule and reward < 0.5'",
    )
    parser.add_argument("--worst", type=int, metavar="N", help="the N lowest")
    parser.add_argument("--best", type=int, metavar="N", help="the N highest")
    parser.add_argument(
        "--by",
        default="reward",
        metavar="COLUMN",
        help="column that --worst and --best compare (default: %(default)s)",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=5,
        metavar="N",
        help="responses without --worst or --best (default: %(default)s)",
    )
    parser.add_argument("--full", action="store_true", help="do not shorten long texts")
    parser.add_argument(
        "--columns", action="store_true", help="list the columns that conditions may name"
    )
    options = parser.parse_intermixed_args(sys.argv[1:] if arguments is None else list(arguments))
    if options.worst is not None and options.best is not None:
        parser.error("--worst and --best: give one of them")
    with exit_code() as code:
        run(options)
    return code.value


if __name__ == "__main__":
    sys.exit(main())
