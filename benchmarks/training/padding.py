"""Micro-batches of rows of like length against padded ones, in the same training engine.

A program (`python -m benchmarks.training.padding job.json out.json`). The same rows are trained on
in three ways:

    bucketed        rmrl's own: sorted by length, micro-batches of at most as many padded tokens as
      the padded ones have
    padded micro    micro-batches in order of arrival, each row padded to the longest row of its
      micro-batch
    padded batch    the same, each row padded to the longest row of the batch (as where padding is
      done once, after sampling)

Padding is response that does not count (mask 0) and is computed like the rest, head included. The
three ways must give the same loss.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.training.job import Job, read
from benchmarks.training.processes import run
from rmrl.backends import TRAIN_ENGINES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.config.schema import ActorConfig, FSDPConfig, ModelConfig, OptimConfig
from rmrl.types import Ragged, TrainBatch

ROUNDS = 4
"""The first one warms up."""
ROWS = 4
"""Of a padded micro-batch."""


def measure(job: Job, folder: Path, *, on: Sequence[int]) -> dict[str, Any]:
    """Seconds of an update for each way and round, and what of the computed tokens was not
    padding."""
    folder.mkdir(parents=True)
    out = folder / "out.json"
    run(
        "benchmarks.training.padding",
        [str(job.write(folder / "job.json")), str(out)],
        on=on,
        log=folder / "log.txt",
    )
    return json.loads(out.read_text(encoding="utf-8"))


def main() -> None:
    """Train on the same rows in each way, and write what was measured."""
    job, out = read(Path(sys.argv[1])), Path(sys.argv[2])
    lengths = response_lengths(job)
    limit = ROWS * (job.max_prompt_tokens + max(lengths))
    engine = TRAIN_ENGINES["fsdp2"](settings(job, limit), ProcessSettings(threads=job.threads))
    batch = rows_of(lengths, job)
    ways = {
        "bucketed": batch,
        "padded_micro": padded(batch, ROWS),
        "padded_batch": padded(batch, len(batch)),
    }
    found: dict[str, Any] = {name: {"update_s": [], "loss": 0.0} for name in ways}
    for number in range(ROUNDS):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            metrics = engine.update([ways[name]])
            if number:
                found[name]["update_s"].append(time.perf_counter() - started)
            found[name]["loss"] = metrics["policy/loss"]
    useful = float(batch.tokens.lengths.sum())
    out.write_text(
        json.dumps(
            {"rows": len(batch), "tokens": useful, "micro_batch_tokens": limit, "ways": found}
        ),
        encoding="utf-8",
    )


def settings(job: Job, limit: int) -> TrainSettings:
    """The engine of rmrl's side, with a learning rate of 0: every update is the same one."""
    actor = ActorConfig(
        ppo_max_token_len_per_gpu=limit,
        optim=OptimConfig(lr=0.0),
        fsdp_config=FSDPConfig(param_dtype=None if job.dtype == "float32" else job.dtype),
    )
    model = ModelConfig(path=job.model, enable_gradient_checkpointing=False)
    return TrainSettings(
        model=model, actor=actor, temperature=job.temperature, max_response_length=job.max_tokens
    )


def response_lengths(job: Job) -> list[int]:
    """Few long responses and many short ones, as a policy writes them: log-normal, cut at
    max_tokens."""
    draw = random.Random(job.seed)
    return [
        max(2, min(job.max_tokens, round(draw.lognormvariate(0.0, 0.8) * job.max_tokens / 3)))
        for _ in range(job.responses)
    ]


def rows_of(lengths: Sequence[int], job: Job) -> TrainBatch:
    """Random tokens with prompts of a quarter of max_prompt_tokens up to all of it, and advantages
    of mean 0."""
    draw = np.random.default_rng(job.seed)
    prompts = draw.integers(job.max_prompt_tokens // 4, job.max_prompt_tokens + 1, len(lengths))
    advantages = draw.standard_normal(len(lengths))
    return TrainBatch(
        tokens=Ragged.of(
            [draw.integers(5, 14, p + t) for p, t in zip(prompts, lengths, strict=True)], np.int64
        ),
        response_mask=Ragged.of([np.ones(t) for t in lengths], np.float32),
        advantages=Ragged.of(
            [np.full(t, a) for t, a in zip(lengths, advantages, strict=True)], np.float32
        ),
    )


def padded(batch: TrainBatch, rows: int) -> TrainBatch:
    """Each row as long as the longest of the `rows` rows it arrives with, by response tokens that
    do not count."""
    sizes = batch.tokens.lengths
    missing = [
        sizes[start : start + rows].max() - sizes[start : start + rows]
        for start in range(0, len(batch), rows)
    ]
    streams = {name: getattr(batch, name) for name in ("tokens", "response_mask", "advantages")}
    return replace(
        batch,
        **{name: _lengthened(stream, np.concatenate(missing)) for name, stream in streams.items()},
    )


def _lengthened(stream: Ragged, missing: np.ndarray) -> Ragged:
    more: Callable[[int], np.ndarray] = lambda count: np.zeros(count, stream.values.dtype)  # noqa: E731
    rows: Iterator[np.ndarray] = (
        np.concatenate([row, more(int(m))]) for row, m in zip(stream.rows(), missing, strict=True)
    )
    return Ragged.of(rows, stream.values.dtype)


if __name__ == "__main__":
    main()
