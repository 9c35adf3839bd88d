"""Write the tasks of a verifiers environment to train.parquet and test.parquet, for training with
actor_rollout_ref.rollout.source=verifiers.

    python data_preprocess/verifiers_tasks.py --env my_tasks --python agents/bin/python \
        --path envs --count 2000 --test-share 0.1 --out data/my_tasks

--python is the interpreter of the environment that has verifiers, --path a folder with the
environment's modules. A row's `extra_info.task` is the task's data as JSON; `prompt` is what people
and rewards read of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rmrl.config.schema.rollout import VerifiersConfig
from rmrl.data import prepare
from rmrl.environments.source import TASK, read_tasks
from rmrl.errors import DataError
from rmrl.exit import exit_code

OPENS_ITSELF = "(the environment writes the first message)"


def make_row(task: Mapping[str, Any], *, env: str, split: str, index: int) -> dict[str, Any]:
    """Return a task as a row of the schema."""
    prompt = task.get("prompt") or OPENS_ITSELF
    messages: list[Any] = [{"role": "user", "content": prompt}]
    if not isinstance(prompt, str):
        messages = [{"role": turn["role"], "content": str(turn["content"])} for turn in prompt]
    if task.get("system_prompt"):
        messages.insert(0, {"role": "system", "content": task["system_prompt"]})
    row: dict[str, Any] = {
        "data_source": env,
        "prompt": messages,
        "extra_info": {"split": split, "index": index, TASK: json.dumps(task, sort_keys=True)},
    }
    answer = task.get("answer")
    if isinstance(answer, str | int | float):
        row["reward_model"] = {"style": "rule", "ground_truth": str(answer)}
    return row


def make_rows(
    tasks: Sequence[Mapping[str, Any]], *, env: str, test_share: float
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of both splits. A task's content decides in which it is."""
    rows: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    for index, task in enumerate(tasks):
        content = {name: value for name, value in task.items() if name != "idx"}
        held_out = prepare.is_held_out(json.dumps(content, sort_keys=True), test_share)
        split = "test" if held_out else "train"
        rows[split].append(make_row(task, env=env, split=split, index=index))
    return {split: own for split, own in rows.items() if own}


def run(args: argparse.Namespace) -> dict[Path, int]:
    """Write the files; return file -> rows."""
    prepare.refuse_existing_splits(args.out, overwrite=args.overwrite)
    taskset = json.loads(args.args)
    settings = VerifiersConfig(env=args.env, python=args.python, path=args.path, args=taskset)
    tasks = asyncio.run(read_tasks(settings, args.count, log=args.log))
    if not tasks:
        raise DataError(f"--env {args.env}: the taskset has no tasks")
    rows = make_rows(tasks, env=args.env, test_share=args.test_share)
    return prepare.write_splits(args.out, rows, overwrite=args.overwrite)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = prepare.script_parser(__doc__, out="data/tasks")
    parser.add_argument("--env", required=True, help="taskset: a package, or a module in --path")
    parser.add_argument("--python", help="python with verifiers (default: this one)")
    parser.add_argument("--path", action="append", default=[], help="folder with modules")
    parser.add_argument("--args", default="{}", help="JSON with further entries, as verifiers.args")
    parser.add_argument("--count", type=int, help="most tasks (default: all)")
    parser.add_argument("--test-share", type=float, default=0.0, help="share held out as test rows")
    parser.add_argument("--log", type=Path, default=Path("environment.log"), help="its output")
    args = parser.parse_args(argv)
    with exit_code() as code:
        prepare.report(run(args))
    return code.value


if __name__ == "__main__":
    sys.exit(main())
