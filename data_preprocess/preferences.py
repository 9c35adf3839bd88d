r"""Convert preference pairs to train.parquet and test.parquet with prompt, chosen and rejected, for
preference training and reward evaluation.

    python data_preprocess/preferences.py --source Anthropic/hh-rlhf --out data/hh
    python data_preprocess/preferences.py --source HuggingFaceH4/ultrafeedback_binarized \
        --hub-splits train_prefs test_prefs --out data/uf
    python data_preprocess/preferences.py --source pairs.jsonl --test-share 0.1 --out data/pairs

Layouts, recognised by their columns:

    prompt, chosen, rejected        texts or message lists; responses may repeat the prompt
                                    (UltraFeedback). Instead of prompt:
                                    instruction (+ input), question, messages
    chosen, rejected                whole dialogues: message lists, or texts with "\n\nHuman:" and
                                    "\n\nAssistant:" (HH)
    output_1, output_2, label       label 1 or 2 is the better one (LLMBar); also response_1,
                                    response_2 with label
    response_1, response_2,         votes 1, 2 or 0 for a tie (PandaLM); kept if all annotators
    annotators                      prefer the same response
    best, losers                    one better response and several worse ones (RMB): one pair per
                                    worse response

Columns written: prompt (messages), chosen and rejected (lists of one assistant message: TRL's
conversational layout), responses (both texts, the chosen one first, as `rmrl score` reads them),
data_source, extra_info. Pairs of equal responses, pairs on which annotators disagree, pairs whose
better response is empty, and dialogues that differ before their last turn are left out and counted.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rmrl.data import prepare
from rmrl.data.dialogue import dialogue_turns
from rmrl.data.problems import FieldError, shown
from rmrl.data.schema import as_messages
from rmrl.data.sources import SPLITS, HubNames, Record
from rmrl.errors import DataError
from rmrl.exit import exit_code
from rmrl.types import Message

Turns = tuple[Message, ...]
Pair = Mapping[str, Any]
"""prompt: Turns; chosen, rejected: str; extra: other fields of the record."""

PROMPT_FIELDS = ("prompt", "instruction", "question", "messages")
NUMBERED = (("output_1", "output_2"), ("response_1", "response_2"))
KEPT = ("id", "subset", "category", "source")
"""Fields that go to extra_info where a record has them."""


def pairs_of(record: Mapping[str, Any]) -> list[Pair]:
    """Return the pairs of one record: one, several (`losers`), or none. Raises FieldError."""
    pairs: list[Pair] = []
    for better, worse in _sides(record):
        prompt = _prompt(record)
        if prompt is None:
            prompt = _shared_prompt(better, worse)
            if not len(better.turns) == len(worse.turns) == len(prompt) + 1:
                continue
        chosen = better.response(prompt)
        rejected = worse.response(prompt)
        if chosen != rejected and chosen.strip():
            extra = {name: str(record[name]) for name in KEPT if record.get(name) is not None}
            pairs.append({"prompt": prompt, "chosen": chosen, "rejected": rejected, "extra": extra})
    return pairs


class Side(NamedTuple):
    """The better or the worse response of a pair, with the column that holds it."""

    column: str
    value: Any

    @property
    def turns(self) -> Turns:
        """Messages of the value. Raises FieldError."""
        return turns_of(self.value, self.column)

    def response(self, prompt: Turns) -> str:
        """Return the text that follows the prompt. Raises FieldError."""
        turns = self.turns
        if len(turns) == 1 and not isinstance(self.value, list):
            return turns[0]["content"]
        rest = turns[len(prompt) :] if turns[: len(prompt)] == prompt else turns
        if len(rest) != 1 or rest[0]["role"] != "assistant":
            roles = ", ".join(turn["role"] for turn in rest) or "none"
            raise FieldError(
                self.column,
                saw=f"messages after the prompt: {roles}",
                need="one assistant message after the prompt",
                todo="correct or drop the row",
            )
        return rest[0]["content"]


def _sides(record: Mapping[str, Any]) -> Iterator[tuple[Side, Side]]:
    """Yield (better, worse) of each pair."""
    if "chosen" in record and "rejected" in record:
        yield Side("chosen", record["chosen"]), Side("rejected", record["rejected"])
        return
    if "best" in record and "losers" in record:
        losers = record["losers"]
        if not isinstance(losers, list) or not losers:
            raise FieldError(
                "losers",
                saw=shown(losers),
                need="a list of responses",
                todo="correct or drop the row",
            )
        for loser in losers:
            yield Side("best", record["best"]), Side("losers", loser)
        return
    for first, second in NUMBERED:
        if first in record and second in record:
            winner = _winner(record)
            first_side = Side(first, record[first])
            second_side = Side(second, record[second])
            if winner == 1:
                yield first_side, second_side
            elif winner == 2:
                yield second_side, first_side
            return
    names = ", ".join(map(str, record)) or "(none)"
    raise FieldError(
        "chosen",
        saw=f"only the columns {names}",
        need="a layout that --help lists",
        todo="rename the columns",
    )


def _winner(record: Mapping[str, Any]) -> int:
    """Return 1 or 2; 0 for a tie and where annotators disagree. Raises FieldError."""
    column = "annotators" if record.get("annotators") is not None else "label"
    value: Any = record.get(column)
    votes: list[Any] = value if isinstance(value, list) else [value]
    if not votes or any(isinstance(vote, bool) or vote not in (0, 1, 2) for vote in votes):
        raise FieldError(
            column,
            saw=shown(value),
            need="1 or 2 (0: a tie), or a list of them",
            todo="correct or drop the row",
        )
    return int(votes[0]) if len(set(votes)) == 1 else 0


def _prompt(record: Mapping[str, Any]) -> Turns | None:
    """Return the prompt in a column of its own, None without one."""
    column = next(filter(record.get, PROMPT_FIELDS), None)
    if column is None:
        return None
    value = record[column]
    if column == "instruction" and record.get("input"):
        value = f"{value}\n\n{record['input']}"
    turns = turns_of(value, column)
    if column == "messages" and turns[-1]["role"] == "assistant":
        return turns[:-1]  # UltraFeedback's `messages` is the prompt with the chosen answer
    return turns


def _shared_prompt(better: Side, worse: Side) -> Turns:
    """Return the longest beginning that both dialogues share, with a message left in each."""
    messages = list(zip(better.turns[:-1], worse.turns[:-1], strict=False))
    prompt = [first for first, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], messages)]
    if not prompt:
        raise FieldError(
            better.column,
            saw=f"dialogues whose first messages differ: {shown(better.value)}",
            need=f"dialogues with a common first message, or a column {', '.join(PROMPT_FIELDS)}",
            todo="add the prompt",
        )
    return tuple(prompt)


def turns_of(value: Any, column: str) -> Turns:
    """Check a list of messages; split a text into its Human and Assistant turns, or convert it to
    one message. Raises FieldError."""
    if isinstance(value, bool | int | float):
        value = str(value)  # the answer "True" is a JSON boolean in some published files
        return as_messages(value, column)
    if not isinstance(value, str):
        return as_messages(value, column)
    turns = dialogue_turns(value) or ({"role": "user", "content": value},)
    if turns[-1] == {"role": "assistant", "content": ""} and column in PROMPT_FIELDS:
        return turns[:-1]
    return turns


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
    for where, record in records:
        try:
            pairs = pairs_of(record)
        except FieldError as error:
            raise DataError(f"{where}, {error}") from error
        without_pair += not pairs
        for pair in pairs:
            yield where, pair
    if without_pair:
        print(
            f"{split}: {without_pair} rows left out: annotators disagree, both responses are equal,"
            " the better one is empty, or the dialogues differ before their last turn"
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
