"""What `benchmarks/score_rows.py` compares with: the same rule over the same rows by a bare process
pool, by a process pool with deadlines, and by Ray Data alone.

    python -m benchmarks.score_rows_peers pool|pebble|ray_data rows.jsonl out.jsonl gsm8k 2
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import shutil
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

CHUNK = 32
"""Rows per message of the pool; about what rmrl's own pool sends at most."""


def rule_of(name: str) -> Callable[..., Any]:
    """Return the shipped rule."""
    return importlib.import_module(f"reward_functions.{name}").compute_score


def scored(line: str, rule: str) -> str:
    """Return the row with its score, as JSON."""
    row = json.loads(line)
    verdict = rule_of(rule)(
        row["data_source"], row["response"], row["reward_model"]["ground_truth"], row["extra_info"]
    )
    row["reward"] = verdict["score"] if isinstance(verdict, dict) else verdict
    return json.dumps(row)


def pool(rows: Path, out: Path, rule: str, workers: int) -> None:
    """Score with a process pool; lines go out and come back as texts."""
    with (
        multiprocessing.get_context("spawn").Pool(workers) as processes,
        rows.open(encoding="utf-8") as lines,
        out.open("w", encoding="utf-8") as file,
    ):
        for text in processes.imap(partial(scored, rule=rule), lines, chunksize=CHUNK):
            file.write(text + "\n")


def pebble(rows: Path, out: Path, rule: str, workers: int) -> None:
    """Score with a pool that ends a row's process behind a deadline of 10 s. Its deadline holds for
    one call, so each row is a call; a thousand wait, so that memory does not grow with the file."""
    from pebble import ProcessPool  # pyright: ignore[reportMissingImports]

    context = multiprocessing.get_context("spawn")
    with (
        ProcessPool(max_workers=workers, context=context) as processes,
        rows.open(encoding="utf-8") as lines,
        out.open("w", encoding="utf-8") as file,
    ):
        waiting: deque[Any] = deque()
        for line in lines:
            waiting.append(processes.schedule(scored, args=(line, rule), timeout=10))
            if len(waiting) >= 1000:
                file.write(waiting.popleft().result() + "\n")
        for future in waiting:
            file.write(future.result() + "\n")


def ray_data(rows: Path, out: Path, rule: str, workers: int) -> None:
    """Score with tasks of Ray Data."""
    import ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def score(batch: dict[str, Any]) -> dict[str, Any]:
        compute = rule_of(rule)
        rewards: list[float] = []
        for source, text, model, info in zip(
            batch["data_source"],
            batch["response"],
            batch["reward_model"],
            batch["extra_info"],
            strict=True,
        ):
            verdict = compute(source, text, model["ground_truth"], info)
            rewards.append(verdict["score"] if isinstance(verdict, dict) else verdict)
        return {**batch, "reward": rewards}

    shutil.rmtree(out, ignore_errors=True)
    data = ray.data.read_json(str(rows), lines=True)
    data.map_batches(cast(Any, score), batch_size=256).write_json(str(out))


if __name__ == "__main__":
    side = {"pool": pool, "pebble": pebble, "ray_data": ray_data}[sys.argv[1]]
    side(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
