"""Convert HealthBench (conversations about health with criteria that physicians wrote,
arXiv:2505.08775) to train.parquet, for `kind: rubric` with `criteria_from: extra_info.rubrics`.

    python data_preprocess/healthbench.py --source 2025-05-07-06-14-12_oss_eval.jsonl --out data/healthbench

A record has the conversation in `prompt` (messages that end with a user turn) and its criteria in
`rubrics`, [{criterion, points, tags}]; both are passed on unchanged. The judge reads the whole
conversation.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmrl.data import prepare
from rmrl.errors import DataError
from rmrl.exit import exit_code
from rmrl.rewards.kinds.judge.asking import conversation_text

DATA_SOURCE = "openai/healthbench"


def make_row(record: Mapping[str, Any], /, *, split: str, index: int, where: str) -> dict[str, Any]:
    """Return one row of the schema. Raises DataError naming `where`."""
    turns = record.get("prompt")
    rubrics = record.get("rubrics")
    saw = ", ".join(map(str, record)) or "none"
    if not isinstance(turns, list) or not turns or not isinstance(rubrics, list) or not rubrics:
        raise DataError(
            f"{where}: saw the fields {saw}; need messages in 'prompt' and criteria in 'rubrics';"
            " give a file of HealthBench"
        )
    messages = [{"role": str(turn["role"]), "content": str(turn["content"])} for turn in turns]
    return {
        "data_source": DATA_SOURCE,
        "prompt": messages,
        "ability": "health",
        "rm_prompt": conversation_text(messages),
        "extra_info": {
            "split": split,
            "index": index,
            "id": str(record.get("prompt_id", index)),
            "rubrics": rubrics,
            "example_tags": list(record.get("example_tags") or []),
        },
    }


def run(args: argparse.Namespace) -> dict[Path, int]:
    """Write the files of `prepare.convert_questions`."""
    return prepare.convert_questions(
        args, make_row, key=lambda record: json.dumps(record["prompt"])
    )


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = prepare.script_parser(__doc__, out="data/healthbench")
    prepare.add_source_options(parser, default="openai/healthbench")
    args = parser.parse_args(argv)
    with exit_code() as code:
        prepare.report(run(args))
    return code.value


if __name__ == "__main__":
    sys.exit(main())
