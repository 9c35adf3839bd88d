r"""Convert preference pairs to train.parquet and test.parquet with prompt, chosen and rejected, for
preference training and reward evaluation.

    python data_preprocess/preferences.py --source Anthropic/hh-rlhf --out data/hh
    python data_preprocess/preferences.py --source HuggingFaceH4/ultrafeedback_binarized \
        --hub-splits train_prefs test_prefs --out data/uf
    python data_preprocess/preferences.py --source pairs.jsonl --test-share 0.1 --out data/pairs

Layouts, recognised by their columns:

    chosen, rejected                and all other layouts that `rmrl eval` reads as pairs: those of
                                    HH, UltraFeedback, HelpSteer 2 and 3, PKU-SafeRLHF, SHP, WebGPT,
                                    Chatbot Arena (also its Kaggle set), PPE, LLMBar, ms-swift,
                                    LLaMA-Factory (docs/training-rewards.md)
    response_1, response_2,         votes 1, 2 or 0 for a tie (PandaLM); kept if all annotators
    annotators                      prefer the same response
    best, losers                    one better response and several worse ones (RMB): one pair per
                                    worse response

Columns written: prompt (messages), chosen and rejected (lists of one assistant message: TRL's
conversational layout), responses (both texts, the chosen one first, as `rmrl score` reads them),
data_source, extra_info. Pairs of equal responses, ties, pairs on which annotators disagree, pairs
whose better response is empty, and dialogues that differ before their last turn are left out and
counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmrl.data import prepare
from rmrl.data.column_names import ColumnNames
from rmrl.data.sources import SPLITS, HubNames, Record
from rmrl.errors import DataError
from rmrl.evaluation.formats.arena import as_battle
from rmrl.evaluation.formats.fields import Fields, Turns
from rmrl.evaluation.formats.pairs import BETTER_AND_WORSE, LAYOUTS, labelled_pair
from rmrl.evaluation.formats.response_text import turns_of
from rmrl.exit import exit_code
from rmrl.types import Message

Pair = Mapping[str, Any]
"""prompt: a tuple of messages; chosen, rejected: str; extra: other fields of the record."""

KNOWN = (*LAYOUTS, *BETTER_AND_WORSE)
KEPT = ("id", "subset", "category", "source")
"""Fields that go to extra_info where a record has them."""


def pairs_of(row: Fields) -> list[Pair]:
    """Return the pairs of one record: one, several (`losers`), or none. Raises DataError."""
    extra = {name: str(row.get(name)) for name in KEPT if row.get(name) is not None}
    return [
        {"prompt": _messages(row, prompt), "chosen": chosen, "rejected": rejected, "extra": extra}
        for prompt, chosen, rejected in _ordered(row)
        if chosen != rejected and chosen.strip()
    ]


def _ordered(row: Fields) -> Iterator[tuple[Turns, str, str]]:
    """Yield (prompt, better, worse) of each pair."""
    if row.get("losers") is not None:
        losers = row.texts("losers")
        if not losers:
            raise row.wrong("losers", losers, "a list of responses")
        prompt = row.prompt_in_any_column()
        for loser in losers:
            yield prompt, row.text("best"), loser
    elif row.get("annotators") is not None:
        votes = row.numbers("annotators")
        if not set(votes) <= {0, 1, 2}:
            raise row.wrong("annotators", votes, "1 or 2 (0: a tie) from each annotator")
        better = int(votes[0])
        if better and len(set(votes)) == 1:
            prompt = row.prompt_in_any_column()
            yield prompt, row.text(f"response_{better}"), row.text(f"response_{3 - better}")
    else:
        if not any(row.names.has(row.values, names) for names in KNOWN):
            raise DataError(
                f"{row.place}: saw only the columns {', '.join(row.values)}; need a layout that"
                " --help lists; rename the columns"
            )
        pair = labelled_pair(row)
        for better in pair.good if not pair.before else ():
            yield pair.prompt, pair.responses[better], pair.responses[1 - better]


def _messages(row: Fields, prompt: Turns) -> tuple[Message, ...]:
    """Return the prompt as messages. Raises DataError for an empty one."""
    if not prompt:
        raise DataError(
            f"{row.place}: saw responses without a prompt; need a column prompt, instruction,"
            " question or messages, or dialogues that begin alike; add the prompt"
        )
    return turns_of(prompt)


def make_row(pair: Pair, /, *, split: str, index: int, where: str, name: str) -> dict[str, Any]:
    """Return one row with the columns listed above."""
    del where
    return {
        "data_source": name,
        "prompt": list(pair["prompt"]),
        "chosen": [{"role": "assistant", "content": pair["chosen"]}],
        "rejected": [{"role": "assistant", "content": pair["rejected"]}],
        "responses": [pair["chosen"], pair["rejected"]],
        "extra_info": {"split": split, "index": index, **pair["extra"]},
    }


def pair_records(records: Iterable[Record], split: str) -> Iterator[Record]:
    """Yield each pair with the location of its record; print the number of records without one."""
    without_pair = 0
    names = ColumnNames()
    for number, (where, record) in enumerate(records):
        row = Fields(place=where, number=number, values=as_battle(record), names=names)
        pairs = pairs_of(row)
        without_pair += not pairs
        for pair in pairs:
            yield where, pair
    if without_pair:
        print(
            f"{split}: {without_pair} rows left out: ties, annotators disagree, both responses are"
            " equal, the better one is empty, or the dialogues differ before their last turn"
        )


def prompt_text(pair: Pair) -> str:
    """Return the text that determines whether a pair is held out; pairs of one prompt stay
    together."""
    return "\n".join(f"{turn['role']}: {turn['content']}" for turn in pair["prompt"])


def run(args: argparse.Namespace) -> dict[Path, int]:
    """Write one parquet file per split; return file -> number of rows."""
    prepare.refuse_existing_splits(args.out, overwrite=args.overwrite)
    names = HubNames(
        configs=(args.hub_config,), splits=dict(zip(SPLITS, args.hub_splits, strict=True))
    )
    pairs: dict[str, Iterator[Record]] = {}
    for split, records in prepare.source_records(args, hub=names).items():
        pairs[split] = pair_records(records, split)
    name = args.name or Path(args.source).stem

    def row_of(pair: Pair, /, *, split: str, index: int, where: str) -> dict[str, Any]:
        return make_row(pair, split=split, index=index, where=where, name=name)

    rows = prepare.build_rows(pairs, row_of, test_share=args.test_share, key=prompt_text)
    return prepare.write_splits(args.out, rows, overwrite=args.overwrite)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = prepare.script_parser(__doc__, out="data/preferences")
    prepare.add_source_options(parser, default="HuggingFaceH4/ultrafeedback_binarized")
    parser.add_argument(
        "--name", help="data_source of the rows (default: the file's or the hub data set's name)"
    )
    parser.add_argument(
        "--hub-config", help="configuration of the hub's data set (default: its only one)"
    )
    parser.add_argument(
        "--hub-splits",
        nargs=2,
        metavar=("TRAIN", "TEST"),
        default=list(SPLITS),
        help="names of the splits on the hub",
    )
    args = parser.parse_args(argv)
    with exit_code() as code:
        prepare.report(run(args))
    return code.value


if __name__ == "__main__":
    sys.exit(main())
