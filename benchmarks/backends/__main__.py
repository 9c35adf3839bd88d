"""Measure, print tables, write JSON and a picture."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.backends import curve, memory

PACKAGES = ("rmrl-toolkit", "megatron-core", "torch", "transformers")
OUT = Path(__file__).resolve().parent.parent / "results" / "backends.json"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.backends", description="Megatron's layouts beside FSDP2."
    )
    parser.add_argument(
        "--only", nargs="+", choices=("curve", "memory"), default=["memory", "curve"]
    )
    parser.add_argument("--steps", type=int, default=20, help="of the curve")
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        help="where the JSON goes, a PNG beside it; parts not measured are kept",
    )
    args = parser.parse_args()
    results: dict[str, Any] = (
        json.loads(args.out.read_text(encoding="utf-8")) if args.out.is_file() else {}
    )
    about = {"command": shlex.join(["python", "-m", "benchmarks.backends", *sys.argv[1:]]),
             "packages": {name: importlib.metadata.version(name) for name in PACKAGES}}  # fmt: skip
    if "memory" in args.only:
        results["memory"] = {**memory.measure(), **about}
        print(memory.table(results["memory"]))
    if "curve" in args.only:
        with tempfile.TemporaryDirectory() as folder:
            found = curve.measure(args.steps, Path(folder))
        results["curve"] = {"layouts": found, **about}
        print(curve.table(found))
        curve.draw(found, args.out.with_suffix(".png"))
    args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
