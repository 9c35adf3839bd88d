r"""Preference pairs -> train.parquet and test.parquet with prompt, chosen and rejected, for
preference training and reward evaluation.

    python data_preprocess/preferences.py --source Anthropic/hh-rlhf --out data/hh
    python data_preprocess/preferences.py --source HuggingFaceH4/ultrafeedback_binarized \
        --hub-splits train_prefs test_prefs --out data/uf
    python data_preprocess/preferences.py --source pairs.jsonl --test-share 0.1 --out data/pairs

Known by their columns:

    prompt, chosen, rejected        texts or message lists; responses may repeat the prompt
                                    (UltraFeedback). Instead of prompt:
                                    instruction (+ input), question, messages
    chosen, rejected                whole dialogues: message lists, or texts with "\n\nHuman:" and "\n\nAssistant:" (HH)
    output_1, output_2, label       label 1 or 2 is the better one (LLMBar); also response_1,
                                    response_2 with label
    response_1, response_2,         votes 1, 2 or 0 for a tie (PandaLM); kept where all agree
    annotators                      and saw no tie
    best, losers                    one better response and several worse ones (RMB): one pair for
                                    each of them

Columns written: prompt (messages), chosen and rejected (lists of one assistant message: TRL's
conversational layout), responses (both texts, the chosen one first: `rmrl score` scores them as
they are), data_source, extra_info. Pairs of equal responses, pairs that people did not agree on,
and pairs whose better response is empty are left out and counted.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmrl.data import prepare
from rmrl.data.problems import FieldError, shown
from rmrl.data.schema import as_messages
from rmrl.data.sources import SPLITS, HubNames, Record
from rmrl.errors import DataError
from rmrl.exit import exit_code
from rmrl.types import Message

Turns = tuple[Message, ...]
Pair = Mapping[str, Any]
"""prompt: Turns; chosen, rejected: str; what else the record told under "extra"."""

PROMPT_FIELDS = ("prompt", "instruction", "question", "messages")
NUMBERED = (("output_1", "output_2"), ("response_1", "response_2"))
KEPT = ("id", "subset", "category", "source")
"""Fields that go to extra_info where a record has them."""
_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):[ \t]?")
_ROLE = {"Human": "user", "Assistant": "assistant"}


def pairs_of(record: Mapping[str, Any]) -> list[Pair]:
    """The pairs of one record: one, several (`losers`), or none (see above). Raises FieldError."""
    found: list[Pair] = []
    for better, worse in _sides(record):
        prompt, chosen, rejected = _split_prompt(record, better, worse)
        if chosen != rejected and chosen.strip():
            extra = {name: str(record[name]) for name in KEPT if record.get(name) is not None}
            found.append({"prompt": prompt, "chosen": chosen, "rejected": rejected, "extra": extra})
    return found


def _sides(record: Mapping[str, Any]) -> Iterator[tuple[tuple[str, Any], tuple[str, Any]]]:
    """((column, better), (column, worse)) of each pair."""
    if "chosen" in record and "rejected" in record:
        yield ("chosen", record["chosen"]), ("rejected", record["rejected"])
        return
    if "best" in record and "losers" in record:
        yield from (
            (("best", record["best"]), ("losers", loser)) for loser in _several(record["losers"])
        )
        return
    names = next((pair for pair in NUMBERED if all(name in record for name in pair)), None)
    if names is None:
        have = ", ".join(map(str, record)) or "(none)"
        raise FieldError(
            "chosen",
            saw=f"only the columns {have}",
            need="a layout that --help lists",
            todo="rename the columns",
        )
    winner = _winner(record)
    if winner:
        better, worse = names if winner == 1 else names[::-1]
        yield (better, record[better]), (worse, record[worse])


def _several(losers: Any) -> Sequence[Any]:
    if not isinstance(losers, list) or not losers:
        raise FieldError(
            "losers", saw=shown(losers), need="a list of responses", todo="mend or drop the row"
        )
    return losers


def _winner(record: Mapping[str, Any]) -> int:
    """1 or 2; 0 where people disagree or saw a tie."""
    column = "annotators" if record.get("annotators") is not None else "label"
    given: Any = record.get(column)
    votes: list[Any] = given if isinstance(given, list) else [given]
    if not votes or any(isinstance(vote, bool) or vote not in (0, 1, 2) for vote in votes):
        raise FieldError(
            column,
            saw=shown(given),
            need="1 or 2 (0: a tie), or a list of them",
            todo="mend or drop the row",
        )
    return int(votes[0]) if len(set(votes)) == 1 else 0


def _split_prompt(
    record: Mapping[str, Any], better: tuple[str, Any], worse: tuple[str, Any]
) -> tuple[Turns, str, str]:
    """(prompt, better response, worse response); the prompt is its own column, or what both
    dialogues begin with."""
    first, second = _turns(better[1], better[0]), _turns(worse[1], worse[0])
    prompt = _prompt(record)
    if prompt is None:
        shared = min(len(first), len(second)) - 1
        prompt = next((first[:k] for k in range(shared, 0, -1) if first[:k] == second[:k]), ())
        if not prompt:
            saw = f"dialogues whose first messages differ: {shown(better[1])}"
            need = "dialogues that begin alike, or a column " + ", ".join(PROMPT_FIELDS)
            raise FieldError(better[0], saw=saw, need=need, todo="add the prompt")
    return prompt, _response(first, prompt, better), _response(second, prompt, worse)


def _prompt(record: Mapping[str, Any]) -> Turns | None:
    column = next((name for name in PROMPT_FIELDS if record.get(name)), None)
    if column is None:
        return None
    value = record[column]
    if column == "instruction" and record.get("input"):
        value = f"{value}\n\n{record['input']}"
    turns = _turns(value, column)
    # UltraFeedback's `messages` is the prompt with the chosen answer.
    return turns[:-1] if column == "messages" and turns[-1]["role"] == "assistant" else turns


def _turns(value: Any, column: str) -> Turns:
    """A message list as it is; a text as its Human and Assistant turns, or as one message. Raises
    FieldError."""
    if not isinstance(value, str):
        # The answer "True" is a JSON boolean in some published files.
        return as_messages(str(value) if isinstance(value, bool | int | float) else value, column)
    marks = list(_TURN.finditer(value))
    if [mark[1] for mark in marks[:2]] != ["Human", "Assistant"] or marks[0].start():
        return ({"role": "user", "content": value},)
    ends = [*(mark.start() for mark in marks[1:]), len(value)]
    turns = tuple[Message, ...](
        {"role": _ROLE[m[1]], "content": value[m.end() : end].strip()}
        for m, end in zip(marks, ends, strict=True)
    )
    return (
        turns[:-1]
        if turns[-1] == {"role": "assistant", "content": ""} and column in PROMPT_FIELDS
        else turns
    )


def _response(turns: Turns, prompt: Turns, side: tuple[str, Any]) -> str:
    """The text that follows the prompt."""
    if len(turns) == 1 and not isinstance(side[1], list):
        return turns[0]["content"]
    rest = turns[len(prompt) :] if turns[: len(prompt)] == prompt else turns
    if len(rest) != 1 or rest[0]["role"] != "assistant":
        roles = ", ".join(turn["role"] for turn in rest) or "none"
        need = "one assistant message after the prompt"
        raise FieldError(
            side[0],
            saw=f"messages after the prompt: {roles}",
            need=need,
            todo="mend or drop the row",
        )
    return rest[0]["content"]


def make_row(pair: Pair, /, *, split: str, index: int, where: str, name: str) -> dict[str, Any]:
    """One row of `Columns written`."""
    del where
    return {
        "data_source": name,
        "prompt": list(pair["prompt"]),
        **{side: [{"role": "assistant", "content": pair[side]}] for side in ("chosen", "rejected")},
        "responses": [pair["chosen"], pair["rejected"]],
        "extra_info": {"split": split, "index": index, **pair["extra"]},
    }


def pair_records(records: Iterable[Record], split: str) -> Iterator[Record]:
    """Each pair with the place of its record; says at the end how many records had none."""
    without = 0
    for where, record in records:
        try:
            pairs = pairs_of(record)
        except FieldError as error:
            raise DataError(f"{where}, {error}") from error
        without += not pairs
        yield from ((where, pair) for pair in pairs)
    if without:
        print(
            f"{split}: {without} rows left out: people did not agree, both responses are equal, or"
            " the better one is empty"
        )


def prompt_text(pair: Pair) -> str:
    """What decides whether a pair is held out: pairs of one prompt stay together."""
    return "\n".join(f"{turn['role']}: {turn['content']}" for turn in pair["prompt"])


def run(args: argparse.Namespace) -> dict[Path, int]:
    """Write one parquet file per split found; returns file -> rows."""
    prepare.refuse_existing_splits(args.out, overwrite=args.overwrite)
    names = HubNames(
        configs=(args.hub_config,), splits=dict(zip(SPLITS, args.hub_splits, strict=True))
    )
    pairs = {
        split: pair_records(part, split)
        for split, part in prepare.source_records(args, hub=names).items()
    }
    name = args.name or Path(args.source).stem

    def row_of(pair: Pair, /, *, split: str, index: int, where: str) -> dict[str, Any]:
        return make_row(pair, split=split, index=index, where=where, name=name)

    rows = prepare.build_rows(pairs, row_of, test_share=args.test_share, key=prompt_text)
    return prepare.write_splits(args.out, rows, overwrite=args.overwrite)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
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
        help="what the hub calls the splits",
    )
    args = parser.parse_args(argv)
    with exit_code() as code:
        prepare.report(run(args))
    return code.value


if __name__ == "__main__":
    sys.exit(main())
