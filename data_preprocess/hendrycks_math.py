r"""Convert MATH (competition problems, arXiv:2103.03874) to train.parquet and test.parquet, with
answers in \boxed{}.

    python data_preprocess/hendrycks_math.py \
        --source DigitalLearningGmbH/MATH-lighteval --out data/math
    python data_preprocess/hendrycks_math.py \
        --source train.jsonl --test-source HuggingFaceH4/MATH-500 --out data/math
    python data_preprocess/hendrycks_math.py \
        --source math500.jsonl --test-share 0.2 --out data/math

Records have `problem` and `solution` or `answer`; without `answer` the content of the solution's
last \boxed{} is the answer. `subject` (or `type`) and `level` go to extra_info, and --levels keeps
some levels. If a hub splits the data by subject, name all subjects:

    --source EleutherAI/hendrycks_math --hub-config algebra geometry number_theory ...
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmrl.data import prepare
from rmrl.data.sources import HubNames
from rmrl.errors import DataError
from rmrl.exit import exit_code
from rmrl.rewards.answers.format import last_boxed

INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."
DATA_SOURCE = "hendrycks/math"


def boxed_answer(solution: str) -> str | None:
    r"""Return the content of the last \boxed{...} of a solution (or \fbox{...}, or "\boxed 5"); None
    without one."""
    answer = last_boxed(solution.replace("\\fbox{", "\\boxed{"))
    if answer is not None:
        return answer.strip() or None
    spaced = re.findall(r"\\boxed\s+([^\s$.]+)", solution)
    return spaced[-1] if spaced else None


def make_row(record: Mapping[str, Any], /, *, split: str, index: int, where: str) -> dict[str, Any]:
    """Return one row of the schema. Raises DataError naming `where`."""
    problem = record.get("problem")
    solution = record.get("solution")
    if not isinstance(problem, str) or not problem.strip():
        saw = ", ".join(map(str, record)) or "none"
        raise DataError(
            f"{where}, column 'problem': saw the fields {saw}; need problem, and solution or"
            " answer, all text; rename the fields"
        )
    answer = record.get("answer")
    if answer is None:
        answer = boxed_answer(solution) if isinstance(solution, str) else None
    if answer is None or not str(answer).strip():
        end = repr(solution[-60:]) if isinstance(solution, str) else "nothing"
        raise DataError(
            f"{where}, column 'solution': it ends in {end}; need an answer in \\boxed{{}}, or a"
            " column answer; correct or drop the row"
        )
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": f"{problem} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(answer).strip()},
        "rm_prompt": problem,
        "extra_info": {
            "split": split,
            "index": index,
            "subject": record.get("subject", record.get("type")),
            "level": level_of(record),
            "solution": solution,
        },
    }


def level_of(record: Mapping[str, Any]) -> int | None:
    """Return the level from 1 (easiest) to 5, given as 3 or "Level 3"; None without one."""
    digits = re.search(r"\d", str(record.get("level", "")))
    return int(digits[0]) if digits else None


def run(args: argparse.Namespace) -> dict[Path, int]:
    """Convert the problems of --levels; see `prepare.convert_questions`."""
    return prepare.convert_questions(
        args,
        make_row,
        key=lambda record: str(record.get("problem")),
        hub=HubNames(configs=tuple(args.hub_config) or (None,)),
        trains_on=lambda record: not args.levels or level_of(record) in args.levels,
    )


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = prepare.script_parser(__doc__, out="data/math")
    prepare.add_source_options(parser, default="DigitalLearningGmbH/MATH-lighteval")
    parser.add_argument(
        "--hub-config",
        nargs="+",
        default=[],
        help="configurations of the hub's data set (default: its only one)",
    )
    parser.add_argument(
        "--levels",
        nargs="+",
        type=int,
        default=[],
        help="keep training problems of these levels, 1 to 5 (default: all)",
    )
    args = parser.parse_args(argv)
    with exit_code() as code:
        prepare.report(run(args))
    return code.value


if __name__ == "__main__":
    sys.exit(main())
