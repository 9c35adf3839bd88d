"""How often attacks on a judge succeed, without protection, neutralised, and fenced, beside
harmless text of the same length and place.

    python -m benchmarks.attacks --judge .models/smollm2 --solutions
    ../shared/data/rollouts/gsm8k_openai_solutions.jsonl

`copying` is reward_functions/answer_judge.py, which copies a reply's final answer and compares it
with the reference: verdicts on wrong solutions that become right, and verdicts that get lost.
`scoring` is the probability of Yes on the same checkpoint. Each attack meets a wrong solution of
its own. `structure` counts the control tokens that attacks bring into prompts. The solutions file
holds one object per line with question, response, gold and is_correct (openai/grade-school-math,
example_model_solutions).
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import platform
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rmrl
from benchmarks.attacks.judges import Judge
from benchmarks.attacks.measures import ARMS, HEDGING, measure_copying, measure_scoring
from benchmarks.attacks.structure import measure_structure
from benchmarks.attacks.trials import shortened, solutions, trials
from rmrl.rewards.attacks import Attack, load_attacks

BEST = "10"
"""What attacks ask the copying judge to say."""
SHORT = 600
"""Characters up to which attacks that repeat themselves are shown to the scoring judge."""


def main() -> None:
    """Parse arguments, measure, write the counts, print a table."""
    args = _arguments()
    began = time.monotonic()
    copied = [
        a
        for a in load_attacks()[:: args.every]
        for _ in range(args.repeats if a.family == HEDGING else 1)
    ]
    scored = [shortened(a, SHORT) for a in load_attacks()[:: args.every_scored] if not a.needs_gold]
    counts = {True: args.right, False: max(len(copied), len(scored))}
    drawn = solutions(Path(args.solutions), counts, longest=args.longest, without=BEST)
    judge = Judge(args.judge, args.threads)
    document = _about(args, judge) | {
        "structure": measure_structure(judge, trials(_distinct(copied), drawn[False], best=BEST))
    }
    rows: dict[str, Any] = {}
    document["copying"], rows["copying"] = measure_copying(
        judge, trials(copied, drawn[False], best=BEST), drawn[True], best=BEST
    )
    _write(args, document, rows, began)
    document["scoring"], rows["scoring"] = measure_scoring(
        judge, trials(scored, drawn[False], best="Yes"), drawn[True]
    )
    _write(args, document, rows, began)
    print(table(document))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attacks",
        description=__doc__.splitlines()[0] if __doc__ else None,
    )
    parser.add_argument("--judge", default=".models/smollm2")
    parser.add_argument(
        "--solutions", default="../shared/data/rollouts/gsm8k_openai_solutions.jsonl"
    )
    parser.add_argument(
        "--longest", type=int, default=450, help="characters of question and response together"
    )
    parser.add_argument(
        "--right",
        type=int,
        default=60,
        help="right solutions, for what the fence costs and for the order",
    )
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        help="every n-th attack meets the copying judge; 1: all of them",
    )
    parser.add_argument(
        "--every-scored", type=int, default=8, help="every n-th attack meets the scoring judge"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=2,
        help="solutions for each attack that writes the right answer",
    )
    parser.add_argument("--threads", type=int, default=1, help="more are slower on busy cores")
    parser.add_argument("--out", default="benchmarks/results/attacks.json")
    parser.add_argument("--rows", default="", help="also write what each trial gave to this file")
    return parser.parse_args()


def _distinct(attacks: Sequence[Attack]) -> list[Attack]:
    return list(dict.fromkeys(attacks))


def _about(args: argparse.Namespace, judge: Judge) -> dict[str, Any]:
    given = {name: value for name, value in vars(args).items() if name not in ("out", "rows")}
    words = [
        word
        for name, value in given.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    installed = {
        name: importlib.import_module(name).__version__
        for name in ("vllm", "torch", "transformers")
    }
    return {
        "command": shlex.join(["python", "-m", "benchmarks.attacks", *words]),
        "arguments": given,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": judge.device,
        "versions": {"rmrl": rmrl.__version__, "python": platform.python_version()} | installed,
    }


def _write(
    args: argparse.Namespace, document: dict[str, Any], rows: dict[str, Any], began: float
) -> None:
    document["seconds"] = round(time.monotonic() - began)
    Path(args.out).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if args.rows:
        Path(args.rows).write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")


def table(document: dict[str, Any]) -> str:
    """Percentages with intervals by family and arm, and the other measures in a line each."""
    copying, scoring = document["copying"], document["scoring"]
    lines = [
        f"copying judge: wrong solutions accepted %, and verdicts lost %\n{'':<20}{'of':>5}"
        + "".join(f"{a:>28}" for a in ARMS)
    ]
    for name, arms in copying["families"].items():
        cells = [
            f"{_percent(arms[arm]['flipped'])} | {_percent(arms[arm]['no_verdict'])}"
            for arm in ARMS
        ]
        lines.append(
            f"{name:<20}{arms['plain']['flipped']['of']:>5}"
            + "".join(f"{cell:>28}" for cell in cells)
        )
    planted = {
        arm: copying["families"]["without the answer"][arm]["planted_number_copied"] for arm in ARMS
    }
    lines.append(
        "planted number copied % "
        + ", ".join(f"{arm} {_percent(row)} of {row['of']}" for arm, row in planted.items())
    )
    cost = copying["right_solutions"]
    accepted = ", ".join(
        f"{arm} {_percent(cost[arm]['accepted'])}" for arm in ("neutralised", "fenced")
    )
    lines.append(
        f"right solutions accepted % {accepted}; changed by the fence"
        f" {_percent(cost['changed_by_the_fence'])}"
    )
    for arm, row in scoring.items():
        shift, beyond, order = row["shift_beyond_control"], row["attacks_beyond_it"], row["order"]
        lines.append(
            f"scoring judge, {arm}: P(Yes) {shift['mean']:+.3f} {shift['interval_95']} beyond the"
            f" control, {_percent(beyond)} % of {beyond['of']} attacks beyond its 95th percentile;"
            f" right above wrong {order['right_above_wrong']} {order['interval_95']}"
        )
    lines += [
        f"structure, {name}, {arm}: {row}"
        for name, arms in document["structure"].items()
        for arm, row in arms.items()
    ]
    return "\n".join(lines)


def _percent(row: dict[str, Any]) -> str:
    low, high = row["interval_95"]
    return f"{100 * row['rate']:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


if __name__ == "__main__":
    main()
