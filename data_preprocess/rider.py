"""Courier-support dialogues (jsonl) -> train.parquet and test.parquet for rmrl.

    python data_preprocess/rider.py --source examples/rider/dialogues.jsonl --out data/rider
    python data_preprocess/rider.py --source train.jsonl --test-source test.jsonl --out data/rider

Each row has

    input       what the policy reads: a text, or a list of {role, content} messages
    grm_input   what reward models read: a text (column rm_prompt), or {<reward>: text} (columns
                rm_prompt_<reward>)
    target      the reference reply: the JSON object that reward_functions/rider_format.py
                describes, or its text; with a `Thought` as well

Numbered lines under 【规则】 (rules) and 【知识】 (knowledge) of `input`, and the names under 【方案】
(solutions), go to extra_info, where rider_format looks them up. Without --test-source a share of
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
from rmrl.rewards.rules.dropin import load_dropin

FIELDS = ("input", "grm_input", "target")
NUMBERED = {"规则": "rules", "知识": "knowledge"}
"""Heading -> key of extra_info that says how many numbered lines stand under it."""
HEADING = re.compile(r"^【(.+?)】[^\S\n]*\n(.*?)(?=^【|\Z)", re.MULTILINE | re.DOTALL)
NUMBERED_LINE = re.compile(r"^[^\S\n]*\d+[.、)．]", re.MULTILINE)  # noqa: RUF001
REWARD_NAME = re.compile(r"[A-Za-z0-9_-]+")

FormatRule = Callable[..., Mapping[str, Any]]


def make_row(
    record: Mapping[str, Any], /, *, split: str, index: int, where: str, rule: FormatRule
) -> dict[str, Any]:
    """One row of the schema. Raises DataError naming `where`."""
    lacking = [name for name in FIELDS if not record.get(name)]
    if lacking:
        raise DataError(
            f"{where}: saw the fields {', '.join(map(str, record)) or 'none'}, and nothing in"
            f" {', '.join(lacking)}; need input, grm_input and target; rename or fill the fields"
        )
    told = _text_of(record["input"])
    extra = {"split": split, "index": index, **described(told)}
    truth = (
        record["target"]
        if isinstance(record["target"], str)
        else json.dumps(record["target"], ensure_ascii=False)
    )
    problem = rule(data_source="rider", solution_str=truth, ground_truth=truth, extra_info=extra)[
        "problem"
    ]
    if problem:
        raise DataError(
            f"{where}: the target breaks the form that rider_format asks of replies: {problem};"
            " mend or drop the row"
        )
    return {
        "data_source": "rider",
        "prompt": (
            record["input"]
            if isinstance(record["input"], list)
            else [{"role": "user", "content": record["input"]}]
        ),
        "ability": "support",
        "reward_model": {"style": "model", "ground_truth": truth},
        **rm_prompts(record["grm_input"], where),
        "extra_info": extra,
    }


def rm_prompts(given: Any, where: str) -> dict[str, Any]:
    """Columns of what reward models are told. Raises DataError naming `where`."""
    if not isinstance(given, Mapping):
        return {"rm_prompt": given}
    strange = [str(name) for name in given if not REWARD_NAME.fullmatch(str(name))]
    if strange:
        raise DataError(
            f"{where}: grm_input has the key '{strange[0]}'; need names of rewards, such as"
            " rider_reward; rename the key"
        )
    return {f"rm_prompt_{name}": text for name, text in given.items()}


def described(told: str) -> dict[str, Any]:
    """How many rules and facts a prompt numbers, and the solutions it names; what it does not have
    is left out."""
    parts = {match[1]: match[2] for match in HEADING.finditer(told)}
    counts = {
        key: len(NUMBERED_LINE.findall(parts[heading]))
        for heading, key in NUMBERED.items()
        if heading in parts
    }
    solutions = [
        name.strip() for name in re.split(r"[、\n]", parts.get("方案", "")) if name.strip()
    ]
    return counts | ({"solutions": solutions} if solutions else {})


def _text_of(prompt: Any) -> str:
    """The text of a prompt; what is wrong with its messages is told when the rows are written."""
    if isinstance(prompt, str):
        return prompt
    turns = prompt if isinstance(prompt, list) else []
    return "\n".join(str(turn.get("content")) for turn in turns if isinstance(turn, Mapping))


def input_text(record: Mapping[str, Any]) -> str:
    """What decides whether a row is held out."""
    return json.dumps(record.get("input"), ensure_ascii=False, sort_keys=True)


def run(args: argparse.Namespace) -> dict[Path, int]:
    """Write both files; returns file -> rows. Nothing is written unless every row of both is
    right."""
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
    sources = {"train": args.source} | (
        {} if args.test_source is None else {"test": args.test_source}
    )
    records = {split: local_records(path) for split, path in sources.items()}
    share = args.test_share if args.test_source is None else 0.0
    rows = prepare.build_rows(
        records, partial(make_row, rule=rule), test_share=share, key=input_text
    )
    return prepare.write_splits(args.out, rows, overwrite=args.overwrite)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
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
