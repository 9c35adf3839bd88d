"""Convert courier-support dialogues (jsonl) to train.parquet and test.parquet.

    python data_preprocess/rider.py --source examples/rider/dialogues.jsonl --out data/rider
    python data_preprocess/rider.py --source train.jsonl --test-source test.jsonl --out data/rider

Each row has

    input       prompt of the policy: a text, or a list of {role, content} messages
    grm_input   prompt of the reward models: a text (column rm_prompt), or {<reward>: text} (columns
                rm_prompt_<reward>)
    target      reference reply: the JSON object that reward_functions/rider_format.py describes,
                or its text; it has a `Thought` as well

The numbers of lines under 【规则】 (rules) and 【知识】 (knowledge) of `input`, and the names under
【方案】 (solutions), go to extra_info, where rider_format reads them. Without --test-source a share of
the rows is held out, chosen by a hash of `input`: equal inputs stay together.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rmrl.config.load import shipped
from rmrl.data import prepare
from rmrl.data.sources import local_records
from rmrl.errors import ConfigError, DataError
from rmrl.exit import exit_code
from rmrl.rewards.dropins.dropin import load_dropin

FIELDS = ("input", "grm_input", "target")
NUMBERED = {"规则": "rules", "知识": "knowledge"}
"""Heading -> key of extra_info with the number of numbered lines below it."""
HEADING = re.compile(r"^【(.+?)】[^\S\n]*\n(.*?)(?=^【|\Z)", re.MULTILINE | re.DOTALL)
NUMBERED_LINE = re.compile(r"^[^\S\n]*\d+[.、)．]", re.MULTILINE)  # noqa: RUF001
REWARD_NAME = re.compile(r"[A-Za-z0-9_-]+")

FormatRule = Callable[..., Mapping[str, Any]]


def make_row(
    record: Mapping[str, Any], /, *, split: str, index: int, where: str, rule: FormatRule
) -> dict[str, Any]:
    """Return one row of the schema. Raises DataError naming `where`."""
    empty = [name for name in FIELDS if not record.get(name)]
    if empty:
        raise DataError(
            f"{where}: saw the fields {', '.join(map(str, record)) or 'none'}, and nothing in"
            f" {', '.join(empty)}; need input, grm_input and target; rename or fill the fields"
        )
    prompt = record["input"]
    text = prompt if isinstance(prompt, str) else ""
    if isinstance(prompt, list):
        # Malformed messages are reported when the rows are written.
        text = "\n".join(str(turn.get("content")) for turn in prompt if isinstance(turn, Mapping))
    else:
        prompt = [{"role": "user", "content": prompt}]
    extra = {"split": split, "index": index, **sections_of(text)}
    truth = record["target"]
    if not isinstance(truth, str):
        truth = json.dumps(truth, ensure_ascii=False)
    verdict = rule(data_source="rider", solution_str=truth, ground_truth=truth, extra_info=extra)
    if verdict["problem"]:
        raise DataError(
            f"{where}: the target violates the format of rider_format: {verdict['problem']};"
            " correct or drop the row"
        )
    return {
        "data_source": "rider",
        "prompt": prompt,
        "ability": "support",
        "reward_model": {"style": "model", "ground_truth": truth},
        **rm_prompts(record["grm_input"], where),
        "extra_info": extra,
    }


def rm_prompts(value: Any, where: str) -> dict[str, Any]:
    """Return the columns of the reward models' prompts. Raises DataError naming `where`."""
    if not isinstance(value, Mapping):
        return {"rm_prompt": value}
    columns: dict[str, Any] = {}
    for name, text in value.items():
        if not REWARD_NAME.fullmatch(str(name)):
            raise DataError(
                f"{where}: grm_input has the key '{name}'; need names of rewards, such as"
                " rider_reward; rename the key"
            )
        columns[f"rm_prompt_{name}"] = text
    return columns


def sections_of(text: str) -> dict[str, Any]:
    """Return the numbers of rules and facts in a prompt, and the solutions it names, without absent
    sections."""
    sections = dict(HEADING.findall(text))
    extra: dict[str, Any] = {}
    for heading, key in NUMBERED.items():
        if heading in sections:
            extra[key] = len(NUMBERED_LINE.findall(sections[heading]))
    names = map(str.strip, re.split(r"[、\n]", sections.get("方案", "")))
    solutions = list(filter(None, names))
    if solutions:
        extra["solutions"] = solutions
    return extra


def input_text(record: Mapping[str, Any]) -> str:
    """Return the text that determines whether a row is held out."""
    return json.dumps(record.get("input"), ensure_ascii=False, sort_keys=True)


def run(args: argparse.Namespace) -> dict[Path, int]:
    """Write both files; return file -> number of rows. Nothing is written unless every row of both
    files is valid."""
    if args.test_source is None and not 0 < args.test_share < 1:
        raise ConfigError(
            f"--test-share {args.test_share:g}: give a share between 0 and 1, or --test-source with"
            " the test rows"
        )
    prepare.refuse_existing_splits(args.out, overwrite=args.overwrite)
    rule = load_dropin(
        shipped("reward_functions") / "rider_format.py", "rider_format"
    ).compute_score
    assert rule is not None
    records = {"train": local_records(args.source)}
    share = args.test_share
    if args.test_source is not None:
        records["test"] = local_records(args.test_source)
        share = 0.0
    rows = prepare.build_rows(
        records, partial(make_row, rule=rule), test_share=share, key=input_text
    )
    return prepare.write_splits(args.out, rows, overwrite=args.overwrite)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = prepare.script_parser(__doc__, out="data/rider")
    parser.add_argument("--source", type=Path, required=True, help="jsonl file")
    parser.add_argument(
        "--test-source",
        type=Path,
        help="jsonl file of the test rows (default: hold out --test-share of --source)",
    )
    parser.add_argument(
        "--test-share",
        type=float,
        default=0.2,
        help="share of --source held out (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    with exit_code() as code:
        prepare.report(run(args))
    return code.value


if __name__ == "__main__":
    sys.exit(main())
