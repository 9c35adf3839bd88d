"""Generated arithmetic -> train.parquet and test.parquet for rmrl: small problems with known
answers, as easy or hard as you like.

    python data_preprocess/arithmetic.py --out data/arithmetic --train 2000 --test 200
    python data_preprocess/arithmetic.py --tasks products gcd --difficulty hard --style gsm8k

No problem is in both files, nor twice in one: 3 + 4 counts as one problem whatever task it came
from.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rmrl.data import prepare
from rmrl.errors import ConfigError
from rmrl.exit import exit_code

TASKS: dict[str, dict[str, dict[str, Any]]] = {
    "chain_sum": {
        "easy": {"min_terms": 2, "max_terms": 2, "max_digits": 2},
        "medium": {"min_terms": 2, "max_terms": 3, "max_digits": 3},
        "hard": {"min_terms": 3, "max_terms": 6, "max_digits": 4},
    },
    "basic_arithmetic": {
        "easy": {
            "min_terms": 2,
            "max_terms": 2,
            "max_digits": 2,
            "operators": ["+", "-"],
            "allow_parentheses": False,
            "allow_negation": False,
        },
        "medium": {
            "min_terms": 2,
            "max_terms": 3,
            "max_digits": 2,
            "operators": ["+", "-", "*"],
            "allow_negation": False,
        },
        "hard": {"min_terms": 3, "max_terms": 6, "max_digits": 3},
    },
    "products": {
        "easy": {"max_digits": 2},
        "medium": {"max_digits": 3},
        "hard": {"min_digits": 2, "max_digits": 4},
    },
    "gcd": {
        "easy": {"max_value": 100},
        "medium": {"max_value": 1000},
        "hard": {"max_value": 10000, "max_numbers": 3},
    },
    "lcm": {
        "easy": {"max_value": 50},
        "medium": {"max_value": 100},
        "hard": {"max_value": 500, "max_numbers": 3},
    },
    "simple_equations": {
        "easy": {"min_terms": 2, "max_terms": 2, "max_value": 20},
        "medium": {"min_terms": 2, "max_terms": 3, "max_value": 50},
        "hard": {"min_terms": 3, "max_terms": 4, "max_value": 100},
    },
}
"""Task of the package reasoning-gym -> difficulty -> its settings. Every answer is one whole
number."""

DIFFICULTIES = ("easy", "medium", "hard")
STYLES = {
    "number": "Answer with the number only.",
    "gsm8k": 'Let\'s think step by step and output the final answer after "####".',
    "boxed": "Let's think step by step and output the final answer within \\boxed{}.",
}
"""How the answer is asked for; the text follows the question."""

_TRIES_PER_PROBLEM = 40
_ASKS_FOR_FORMAT = re.compile(r"\s*Give only .*? as your final answer\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One sum with its answer."""

    task: str
    question: str
    answer: str
    key: str
    """Equal for problems that are the same sum in other words or spacing."""


def generate(task: str, difficulty: str, *, seed: int) -> Iterator[Problem]:
    """An endless stream of problems, the same for the same seed; repeats occur."""
    try:
        import reasoning_gym  # slow to import: --help should not wait for it
    except ImportError as error:
        raise ConfigError(
            "the problems come from the package reasoning-gym, which is not installed; run: pip"
            ' install "reasoning-gym>=0.1.20"'
        ) from error

    size = 10_000
    for block in range(sys.maxsize):
        block_seed = random.Random(f"{task} {seed} {block}").randrange(2**31)
        items = reasoning_gym.create_dataset(
            task, seed=block_seed, size=size, **TASKS[task][difficulty]
        )
        for index in range(size):
            yield as_problem(task, items[index])


def as_problem(task: str, item: Mapping[str, Any]) -> Problem:
    """One generated item; the generator's own wish for an answer format is taken out, `STYLES` has
    ours."""
    expression = item["metadata"].get("expression")
    question = (
        f"What is {expression}?"
        if expression
        else _sentence(_ASKS_FOR_FORMAT.sub("", item["question"]))
    )
    numbers = item["metadata"].get("numbers")
    if expression:
        key = re.sub(r"\s", "", expression)
    elif numbers:
        key = f"{task} {sorted(numbers)}"
    else:
        key = (  # the letter of the unknown makes no new problem
            f"{task} {re.sub(r'[a-z]', 'x', item['metadata']['equation'])}"
        )
    return Problem(task=task, question=question, answer=item["answer"], key=key)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def distinct_problems(
    tasks: Sequence[str], difficulty: str, *, count: int, seed: int
) -> list[Problem]:
    """`count` different problems, the tasks in turn. Raises ConfigError where the tasks have not
    that many."""
    streams = {task: generate(task, difficulty, seed=seed) for task in tasks}
    found: dict[str, Problem] = {}
    with tqdm(total=count, desc="problems", mininterval=0.5) as bar:
        for number in range(count):
            problem = _next_new(streams[tasks[number % len(tasks)]], found)
            if problem is None:
                raise ConfigError(
                    f"--tasks {' '.join(tasks)} --difficulty {difficulty}: found only {number}"
                    f" different problems, --train and --test ask for {count}; ask for fewer, add"
                    " tasks, or take a harder difficulty"
                )
            found[problem.key] = problem
            bar.update()
    return list(found.values())


def _next_new(stream: Iterator[Problem], found: Mapping[str, Problem]) -> Problem | None:
    for _, problem in zip(range(_TRIES_PER_PROBLEM), stream, strict=False):
        if problem.key not in found:
            return problem
    return None


def make_row(problem: Problem, *, split: str, index: int, style: str) -> dict[str, Any]:
    """One row of the schema."""
    return {
        "data_source": f"arithmetic/{problem.task}",
        "prompt": [{"role": "user", "content": f"{problem.question} {STYLES[style]}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "rm_prompt": problem.question,
        "extra_info": {
            "split": split,
            "index": index,
            "question": problem.question,
            "style": style,
        },
    }


def run(args: argparse.Namespace) -> dict[Path, int]:
    """Write both files; returns file -> rows."""
    if args.train < 1 or args.test < 1:
        raise ConfigError(f"--train {args.train} --test {args.test}; need at least 1 of each")
    prepare.refuse_existing_splits(args.out, overwrite=args.overwrite)
    tasks = list(dict.fromkeys(args.tasks))
    problems = distinct_problems(
        tasks, args.difficulty, count=args.train + args.test, seed=args.seed
    )
    # Easy problems repeat soonest, so early finds are easier than late ones: mix before cutting, or
    # the splits would differ.
    random.Random(args.seed).shuffle(problems)
    parts = {"train": problems[: args.train], "test": problems[args.train :]}
    rows = {
        split: [make_row(p, split=split, index=i, style=args.style) for i, p in enumerate(part)]
        for split, part in parts.items()
    }
    return prepare.write_splits(args.out, rows, overwrite=args.overwrite)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = prepare.script_parser(__doc__, out="data/arithmetic")
    parser.add_argument(
        "--train", type=int, default=2000, help="training rows (default: %(default)s)"
    )
    parser.add_argument("--test", type=int, default=200, help="test rows (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="same seed, same files (default: %(default)s)"
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=sorted(TASKS),
        default=["chain_sum", "basic_arithmetic"],
        help="kinds, in equal parts",
    )
    parser.add_argument(
        "--difficulty",
        choices=DIFFICULTIES,
        default="easy",
        help="size of the problems (default: %(default)s)",
    )
    parser.add_argument(
        "--style",
        choices=sorted(STYLES),
        default="number",
        help="how the answer is asked for (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    with exit_code() as code:
        prepare.report(run(args))
    return code.value


if __name__ == "__main__":
    sys.exit(main())
