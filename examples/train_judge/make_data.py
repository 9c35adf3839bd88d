"""Turn preference pairs into prompts for a judge, each pair in both orders.

    python examples/train_judge/make_data.py --train pairs.jsonl --out .data/train_judge
    python examples/train_judge/make_data.py --train pairs/train.parquet --test pairs/test.parquet --out data/judge

Rows have prompt, chosen and rejected (texts or messages), or prompt, response_a, response_b and
label (A or B). Without --test a quarter of the pairs is held out. Written are train.parquet and
test.parquet with the judge's prompt, the right letter as reference, and the same pair in the other
order as rm_prompt_consistent; and held_out.jsonl with the test pairs, for `rmrl eval`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmrl.data import prepare
from rmrl.data.column_names import ColumnNames
from rmrl.evaluation.read_items import raw_rows

sys.path.insert(0, str(Path(__file__).resolve().parent / "reward_functions"))
from pairwise import asked  # the judge's own wording

Pair = dict[str, str]


def text_of(value: Any) -> str:
    """Return a text, or the text of messages."""
    if isinstance(value, str):
        return value
    return "\n\n".join(turn["content"] for turn in value)


def pairs_in(path: str, option: str) -> Iterator[Pair]:
    """Yield the pairs with a better response."""
    for place, row in raw_rows(path, option, ColumnNames()):
        match row:
            case {"chosen": chosen, "rejected": rejected}:
                pass
            case {"response_a": chosen, "response_b": rejected, "label": "A"}:
                pass
            case {"response_a": rejected, "response_b": chosen, "label": "B"}:
                pass
            case {"response_a": _, "response_b": _}:
                continue  # a tie
            case _:
                raise SystemExit(f"{place}: saw {sorted(row)}; need prompt, chosen and rejected")
        pair = {"prompt": row["prompt"], "chosen": chosen, "rejected": rejected}
        yield {name: text_of(value) for name, value in pair.items()}


def prompts_of(pair: Pair) -> Iterator[dict[str, Any]]:
    """Yield the pair's two rows."""
    better_first = asked(pair["prompt"], pair["chosen"], pair["rejected"])
    worse_first = asked(pair["prompt"], pair["rejected"], pair["chosen"])
    for letter, prompt, other in (
        ("A", better_first, worse_first),
        ("B", worse_first, better_first),
    ):
        yield {
            "data_source": "pairs",
            "prompt": prompt,
            "rm_prompt_consistent": other,
            "reward_model": {"style": "rule", "ground_truth": letter},
            "extra_info": {"question": pair["prompt"]},
        }


def main() -> None:
    """Write the files."""
    parser = prepare.script_parser(__doc__, out=".data/train_judge")
    parser.add_argument("--train", required=True, help="file of pairs")
    parser.add_argument("--test", help="file of held-out pairs; left out: a quarter of --train")
    settings: argparse.Namespace = parser.parse_args()
    train = list(pairs_in(settings.train, "--train"))
    if settings.test:
        test = list(pairs_in(settings.test, "--test"))
    else:
        test = [pair for number, pair in enumerate(train) if number % 4 == 3]
        train = [pair for number, pair in enumerate(train) if number % 4 != 3]
    rows = {
        "train": [row for pair in train for row in prompts_of(pair)],
        "test": [row for pair in test for row in prompts_of(pair)],
    }
    prepare.report(prepare.write_splits(settings.out, rows, overwrite=settings.overwrite))
    lines = [json.dumps(pair, ensure_ascii=False) + "\n" for pair in test]
    (settings.out / "held_out.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
