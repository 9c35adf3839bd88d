"""`rmrl score` over many rows: rows per second and memory, against a bare process pool with the same
rule and against Ray Data alone.

    python -m benchmarks.score_rows                                 ratios; writes results/score_rows.json
    python -m benchmarks.score_rows --only memory --rows 1000000    memory by number of rows

The rows are made up: sums with an answer of 20 to 120 words, right or wrong. Every side is a process
of its own that reads the rows from a jsonl file and writes them with their scores to another one.

    rmrl        rmrl score, a rule, two worker processes
    pool        multiprocessing.Pool of two processes, `imap` in chunks
    pebble      pebble.ProcessPool of two processes with a deadline for each row, as a rule has in
                rmrl score (`pip install pebble`; not among the default sides)
    ray_data    ray.data.read_json, map_batches with two tasks, write_json
    rmrl_ray    rmrl score with score.engine=ray_data

The sides take turns in every round. Seconds count from the start of a process to its end; those of
the same side with a hundredth of the rows are subtracted, so that neither imports nor the start of
Ray count. The ratio is the median over rounds of (our rows per second / theirs): at 1, rmrl is as
fast. The same is stated per second of processor time of a side's processes, which other programs on
the machine disturb less (not for Ray, whose processes outlive it). Memory is the peak of the driver
process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.words import WORDS

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 2
RULES = {
    # name -> how a response ends
    "math_verify": "The answer is \\boxed{{{}}}.",
    "gsm8k": "#### {}",
}
LIMIT_S = 3600.0


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["speed", "memory"], default="speed")
    parser.add_argument("--rows", type=int, nargs="*", default=[])
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=list(RULES))
    parser.add_argument("--sides", nargs="*", default=["rmrl", "pool", "ray_data"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "score_rows.json"
    )
    given = parser.parse_args()
    result = {}
    if given.out.exists():
        result = json.loads(given.out.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        counts = given.rows or [10_000, 100_000, 1_000_000]
        for count in counts if given.only == "memory" else ():
            result.setdefault("memory", {})[str(count)] = memory(Path(folder), count)
            save(result, given.out)
        for rule in given.rules if given.only == "speed" else ():
            count = (given.rows or [{"math_verify": 8_000}.get(rule, 100_000)])[0]
            case = Case(Path(folder), rule, count, tuple(given.sides))
            result[rule] = case.speeds(given.rounds)
            save(result, given.out)
    print(json.dumps(result, indent=1))


def save(result: dict[str, Any], path: Path) -> None:
    """Write the result."""
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Case:
    """All sides on the same rows with the same rule."""

    folder: Path
    rule: str
    rows: int
    sides: tuple[str, ...]

    def speeds(self, rounds: int) -> dict[str, Any]:
        """Rows per second of every side and round, and ratios."""
        files: list[tuple[Path, int]] = []
        for count in (self.rows, self.rows // 100):
            path = self.folder / f"{self.rule}-{count}.jsonl"
            write_rows(path, count, self.rule)
            files.append((path, count))
        counted = files[0][1] - files[1][1]
        wall: dict[str, list[float]] = {side: [] for side in self.sides}
        cpu: dict[str, list[float]] = {side: [] for side in self.sides}
        for number in range(rounds):
            order = list(self.sides) if number % 2 else list(reversed(self.sides))
            for side in order:
                many = timed(side, files[0][0], self.rule)
                few = timed(side, files[1][0], self.rule)
                wall[side].append(round(counted / (many.seconds - few.seconds), 1))
                cpu[side].append(round(counted / (many.cpu_s - few.cpu_s), 1))
            print(f"{self.rule} round {number}: {wall} {cpu}", file=sys.stderr, flush=True)
        ratios: dict[str, float] = {}
        for other in self.sides[1:]:
            ratios[f"rmrl_over_{other}"] = ratio(wall["rmrl"], wall[other])
        ratios["rmrl_over_pool_per_cpu_second"] = ratio(cpu["rmrl"], cpu["pool"])
        return {
            "rows": self.rows,
            "workers": WORKERS,
            "rows_per_s": wall,
            "rows_per_cpu_s": {side: cpu[side] for side in self.sides if "ray" not in side},
            **ratios,
        }


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Median over the rounds."""
    shares = [a / b for a, b in zip(ours, theirs, strict=True)]
    return round(statistics.median(shares), 3)


def memory(folder: Path, count: int) -> dict[str, Any]:
    """Peak memory of the driver and seconds for `count` rows, with the rule gsm8k."""
    path = folder / f"rows-{count}.jsonl"
    write_rows(path, count, "gsm8k")
    run = timed("rmrl", path, "gsm8k")
    measured = {
        "file_mib": round(path.stat().st_size / 2**20),
        "seconds": round(run.seconds, 1),
        "cpu_s": round(run.cpu_s, 1),
        "driver_peak_mib": round(run.peak_bytes / 2**20),
    }
    print(count, measured, file=sys.stderr, flush=True)
    path.unlink()
    return measured


def write_rows(path: Path, count: int, rule: str) -> None:
    """Write `count` rows, the same ones in every call."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for row in made_up(count, draw, RULES[rule]):
            file.write(json.dumps(row) + "\n")


def made_up(count: int, draw: random.Random, ending: str) -> Iterator[dict[str, Any]]:
    """Rows of sums with answers, three of five of which are right."""
    for number in range(count):
        first = draw.randint(1, 999)
        second = draw.randint(1, 999)
        words = " ".join(draw.choices(WORDS, k=draw.randint(20, 120)))
        answer = first + second
        if draw.random() >= 0.6:
            answer += draw.randint(1, 9)
        question = f"How much is {first} + {second}? Show your work."
        yield {
            "prompt": [{"role": "user", "content": question}],
            "response": f"{words}\n{ending.format(answer)}",
            "data_source": "sums",
            "reward_model": {"style": "rule", "ground_truth": str(first + second)},
            "extra_info": {"index": number},
        }


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a side took."""

    seconds: float
    cpu_s: float
    """Processor time of the process and of its children."""
    peak_bytes: int
    """Of the driver process."""


def timed(side: str, path: Path, rule: str) -> Run:
    """Run a side to its end."""
    out = path.with_name(f"{path.stem}-{side}.jsonl")
    ours = [
        "-m",
        "rmrl.main_score",
        f"data.files={path}",
        f"out={out}",
        f"reward.models=[{rule}]",
        f"reward.rule_workers={WORKERS}",
        f"reward.functions_dir={ROOT}/reward_functions",
        "trainer.device=cpu",
        "trainer.log_level=warning",
        "overwrite=true",
    ]
    peer = ["-m", "benchmarks.score_rows_peers", side, str(path), str(out), rule, str(WORKERS)]
    commands = {"rmrl": ours, "rmrl_ray": [*ours, "score.engine=ray_data"]}
    cpu_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *commands.get(side, peer)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak = _Peak(process.pid)
    _, errors = process.communicate(timeout=LIMIT_S)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"{side} ended with {process.returncode}:\n{errors[-3000:]}")
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = cpu.ru_utime + cpu.ru_stime - cpu_before.ru_utime - cpu_before.ru_stime
    return Run(seconds, cpu_s, peak.bytes)


class _Peak:
    """Largest resident memory of a process, looked at ten times a second until it ends."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process = psutil.Process(pid)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        try:
            while True:
                self.bytes = max(self.bytes, self._process.memory_info().rss)
                time.sleep(0.1)
        except psutil.Error:
            return


if __name__ == "__main__":
    main()
