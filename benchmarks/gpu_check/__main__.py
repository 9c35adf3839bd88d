"""Runs the checks one after another, each in a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_check import family
from benchmarks.gpu_check.checks import CHECKS, DEADLINES
from benchmarks.gpu_check.model import SHAPES, write_model
from benchmarks.gpu_check.rig import Failed, Numbers, Rig, Skip, read

ROOT = Path(__file__).resolve().parent.parent.parent
_LOG_CHARACTERS = 1500
SHORTEST_S = 20.0
"""A check is not begun with less time than this."""
BATCHES = {"tiny": (6, 24), "small": (16, 256), "large": (32, 512)}
"""Size -> rows of a batch, tokens of its longest prompt and of its longest response."""


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description="Check every path of rmrl that runs on a GPU.",
    )
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="where to compute"
    )
    parser.add_argument(
        "--size", choices=SHAPES, default="small", help="of the random model and of the batches"
    )
    parser.add_argument(
        "--model", default=None, help="a checkpoint to use in place of a random model"
    )
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float32", "float16"), default="bfloat16", help="of compute"
    )
    parser.add_argument(
        "--only", nargs="+", choices=CHECKS, default=list(CHECKS), help="checks to run"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=None,
        help="of all checks together; those for which no time is left are skipped",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        help="where the JSON goes, written again after every check; checks that it holds from an"
        " earlier run and that have not failed are not repeated",
    )
    parser.add_argument(
        "--one", nargs=3, metavar=("CHECK", "RIG", "ANSWER"), help=argparse.SUPPRESS
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks; 1 if any failed, 2 where there is no GPU to run them on."""
    args = arguments(argv)
    if args.one:
        name, rig, answer = args.one
        Path(answer).write_text(
            json.dumps(verdict(CHECKS[name], read(Path(rig)))), encoding="utf-8"
        )
        return 0
    if args.device == "cuda" and not torch.cuda.is_available():
        print(
            "torch sees no CUDA device here: run this on a machine with a GPU, or test the checks"
            " themselves with --device cpu"
        )
        return 2
    end = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    found = done_before(args)
    with tempfile.TemporaryDirectory() as name:
        for check in args.only:
            if found.get(check, {}).get("status") == "PASS":
                print(f"{check} has passed before")
                continue
            if time.monotonic() + SHORTEST_S > end:
                found[check] = {"status": "SKIP", "reason": "no time is left", "numbers": {}}
                continue
            rig, left_s = rig_of(args, Path(name)), end - time.monotonic()
            found[check] = run(check, rig, Path(name), DEADLINES[check], left_s=left_s)
            if args.out:
                text = json.dumps({**about(args), "checks": found}, indent=1)
                partial = args.out.with_name(f"{args.out.name}.partial")
                partial.write_text(text, encoding="utf-8")
                partial.replace(args.out)
    counts = {
        status: sum(f["status"] == status for f in found.values())
        for status in ("PASS", "FAIL", "SKIP")
    }
    print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return 1 if counts["FAIL"] else 0


def done_before(args: argparse.Namespace) -> dict[str, Any]:
    """The checks in the file of an earlier run with the same settings; none without one."""
    if args.out is None or not args.out.is_file():
        return {}
    earlier = json.loads(args.out.read_text(encoding="utf-8"))
    same = about(args)
    if any(earlier.get(key) != same[key] for key in ("device", "gpu", "model", "dtype")):
        return {}
    return earlier["checks"]


def rig_of(args: argparse.Namespace, folder: Path) -> Rig:
    """The machine and the model, which is made on the first call."""
    path = Path(args.model) if args.model else folder / "model"
    if not path.exists():
        write_model(path, args.size)
    rows, longest = BATCHES[args.size]
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return Rig(
        model=str(path.resolve()),
        folder=str(folder),
        device=args.device,
        dtype=args.dtype,
        rows=rows,
        longest=longest,
        threads=threads,
    )


def verdict(check: Callable[[Rig], Numbers], rig: Rig) -> dict[str, Any]:
    """What a check says, whatever it raises."""
    try:
        return {"status": "PASS", "reason": "", "numbers": check(rig)}
    except Skip as skipped:
        return {"status": "SKIP", "reason": str(skipped), "numbers": {}}
    except Failed as failed:
        return {"status": "FAIL", "reason": str(failed), "numbers": failed.numbers}
    except Exception:  # a check that breaks has failed, whatever broke
        return {
            "status": "FAIL",
            "reason": traceback.format_exc()[-_LOG_CHARACTERS:],
            "numbers": {},
        }


def run(
    check: str, rig: Rig, folder: Path, deadline_s: float, *, left_s: float = float("inf")
) -> dict[str, Any]:
    """The verdict of a process of its own, printed. A check that is past `deadline_s` has failed; one
    that `left_s` cut off before has no verdict."""
    started = time.perf_counter()
    answer, log = folder / f"{check}.json", folder / f"{check}.log"
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu_check",
        "--one",
        check,
        str(rig.write(folder / "rig.json")),
        str(answer),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TOKENIZERS_PARALLELISM": "false",
    }
    with log.open("wb") as file:
        patience_s = min(deadline_s, left_s)
        code = family.call(command, patience_s, cwd=ROOT, env=environment, output=file)
    if code is None:
        ended = f"no answer within {patience_s:.0f} s"
    else:
        ended = f"its process ended with code {code}"
    if answer.is_file():
        found = json.loads(answer.read_text(encoding="utf-8"))
    elif code is None and left_s < deadline_s:
        found = {"status": "SKIP", "reason": f"no time was left: {ended}", "numbers": {}}
    else:
        said = log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:]
        found = {"status": "FAIL", "reason": f"{ended}: {said}", "numbers": {}}
    found["seconds"] = time.perf_counter() - started
    print(line(check, found), flush=True)
    return found


def line(check: str, found: Mapping[str, Any]) -> str:
    """One line on a terminal; a failure's reason follows it."""
    numbers = " ".join(f"{name}={value:.4g}" for name, value in found["numbers"].items())
    reason = f" ({found['reason']})" if found["reason"] else ""
    return f"{found['status']} {check} {found['seconds']:.0f} s {numbers}{reason}"


def about(args: argparse.Namespace) -> dict[str, Any]:
    """What was run, with what."""
    gpu = (
        torch.cuda.get_device_name(0) if args.device == "cuda" and torch.cuda.is_available() else ""
    )
    versions = {"python": platform.python_version()}
    for package in ("torch", "transformers", "vllm", "ray", "megatron-core", "flash-attn", "peft"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    model = Path(args.model).name if args.model else f"random, {args.size}"
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": args.device,
        "gpu": gpu,
        "versions": versions,
        "model": model,
        "dtype": args.dtype,
    }


if __name__ == "__main__":
    sys.exit(main())
