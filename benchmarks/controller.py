"""Seconds of a training step that the controller itself needs, by number of responses.

    python -m benchmarks.controller [--responses 512 2048 8192] [--rounds 3]

The controller is the driver: it takes responses from the rollout engines, makes batches of them,
hands rows to the training processes, computes advantages, and writes samples and metrics, while
engines and trainers wait. Everything here is what a run calls; engines and training processes are
stand-ins that answer at once, and what crosses to another process is pickled as Ray does it
(protocol 5, the arrays of a pickle copied once more). Scoring is not in it: rewards are given.

A response has 2,048 tokens and its log-probabilities, about 8 kB of text, and one judge's prompt
and verdict. Two layouts of 8 training processes: fsdp2 (each has rows of its own) and megatron with
tensor parallel 8 (all have the same rows). The share is that of a step of `STEP_S` seconds with
4,096 responses, longer or shorter with the number of responses.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import json
import pickle
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.algorithms.kl import KLController
from rmrl.backends.row_assignment import RowAssignment
from rmrl.cluster.worker_group import WorkerGroup
from rmrl.config.schema import AlgorithmConfig
from rmrl.telemetry.clock import StepClock
from rmrl.telemetry.sinks import Sinks
from rmrl.telemetry.transcripts import SampleWriter
from rmrl.trainer.batches import add_advantages, keep_informative, mini_batches
from rmrl.trainer.policy import TrainedModel, TrainGroup
from rmrl.trainer.records import Telemetry
from rmrl.trainer.rollouts import RolloutPool
from rmrl.trainer.scored_rollouts import ScoredRollouts
from rmrl.types import (
    Generation,
    Prompt,
    Ragged,
    RewardBatch,
    Rollouts,
    Sampling,
    ScoreResult,
    Scores,
)

TOKENS = 2048
PROMPT_TOKENS = 256
GROUP = 8
PROCESSES = 8
MINI_BATCHES = 4
STEP_S = 330.0
"""Seconds of a step with 4,096 responses: what a policy of 7 billion parameters with two judges is
estimated to take on 8 H100. Not measured here."""
STEP_RESPONSES = 4096
RESULT = Path(__file__).parent / "results" / "controller.json"

LAYOUTS = {
    "fsdp2": RowAssignment(tuple(range(PROCESSES)), tuple(range(PROCESSES))),
    "tensor parallel 8": RowAssignment((0,) * PROCESSES, (0,)),
}


def sent(value: Any) -> Any:
    """Pickle as Ray does, arrays apart and copied into its store."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return data, [bytes(buffer.raw()) for buffer in buffers]


def received(message: Any) -> Any:
    """Load what `sent` made; the arrays are views of it."""
    data, buffers = message
    return pickle.loads(data, buffers=buffers)


@dataclass(slots=True)
class Stored:
    """Stands for a value in Ray's store."""

    value: Any


@dataclass(slots=True)
class Engine:
    """A rollout engine whose samples are finished already, 64 to a message."""

    messages: list[Any]

    async def stream(self, *_: Any, timeout_s: float) -> AsyncIterator[Any]:
        del timeout_s
        for message in self.messages:
            for sample in received(message):
                yield sample
            await asyncio.sleep(0)


@dataclass(slots=True)
class Trainer:
    """A training process that answers log-probabilities of zero."""

    name: str

    def stored(self, value: Any) -> Stored:
        sent(value)
        return Stored(value)

    async def result(self, method: str, *args: Any, timeout_s: float) -> Any:
        del method, timeout_s
        _, work, rows = args
        if isinstance(rows, Stored):
            rows = rows.value
        else:
            sent(rows)
        if work == "update":
            return {"policy/loss": 0.0}
        lengths = rows.response_mask.lengths
        return received(sent(Ragged(np.zeros(int(lengths.sum()), np.float32), lengths)))


@dataclass(slots=True)
class Stopwatch:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start


@dataclass(slots=True)
class Data:
    prompts: list[Prompt]
    engine: Engine
    rewards: RewardBatch


def make_data(responses: int) -> Data:
    """Prompts, finished samples and their rewards."""
    draw = np.random.default_rng(0)
    text = "The answer follows from the second equation. " * (TOKENS * 4 // 45)
    prompts: list[Prompt] = []
    for number in range(responses // GROUP):
        prompt = Prompt(
            id=f"train:{number}",
            messages=[{"role": "user", "content": text[: PROMPT_TOKENS * 4]}],
            token_ids=tuple(draw.integers(0, 150_000, PROMPT_TOKENS).tolist()),
            ground_truth="72",
            data_source="math",
        )
        prompts.append(prompt)
    samples: list[Generation] = []
    messages: list[Any] = []
    for number in range(responses):
        samples.append(_sample(number, draw, text))
        if len(samples) == 64 or number == responses - 1:
            messages.append(sent(samples))
            samples = []
    verdicts: list[ScoreResult] = []
    for value in draw.random(responses).tolist():
        verdict = ScoreResult(
            value=value, rendered=text[: TOKENS * 4 + 512], raw_text="Score: 7", latency_s=1.0
        )
        verdicts.append(verdict)
    rewards_B = np.asarray([verdict.value for verdict in verdicts], dtype=np.float64)
    rewards = RewardBatch(
        scores=Scores(names=("judge",), results=(tuple(verdicts),)),
        weights_C=np.ones(1),
        rewards_B=rewards_B,
        keep_B=np.ones(responses, dtype=bool),
    )
    return Data(prompts, Engine(messages), rewards)


def _sample(number: int, draw: np.random.Generator, text: str) -> Generation:
    return Generation(
        prompt_index=number // GROUP,
        sample_index=number % GROUP,
        text=text[number % 32 :],
        token_ids=draw.integers(0, 150_000, TOKENS).astype(np.int32),
        logprobs=-draw.random(TOKENS).astype(np.float32),
        finish_reason="stop",
    )


async def step(data: Data, assignment: RowAssignment, folder: Path) -> dict[str, float]:
    """Return the seconds of each stage of one step."""
    timed = Stopwatch()
    workers: Any = [Trainer(f"train-{rank}") for rank in range(PROCESSES)]
    group = TrainGroup(WorkerGroup(workers), timeout_s=600.0, offloads=False)
    policy = TrainedModel(group, "actor", assignment)
    engines: Any = [data.engine]
    pool = RolloutPool(engines, timeout_s=600.0, sleeps=False)
    samples = SampleWriter(folder / "samples.jsonl")
    telemetry = Telemetry(
        sinks=Sinks({}), samples=samples, val_samples=SampleWriter(folder / "val.jsonl")
    )
    with timed("take samples"):
        rollouts = await pool.generate(
            data.prompts, Sampling(max_tokens=TOKENS, n=GROUP), on_response=lambda *_: None
        )
    with timed("make the batch"):
        scored = _scored(rollouts, data.rewards)
        batch = keep_informative(scored)
    with timed("rows for log-probabilities"):
        old = await policy.logprobs(batch.train)
        train = dataclasses.replace(batch.train, old_logprobs=old)
        batch = dataclasses.replace(batch, train=train)
    with timed("advantages"):
        settings = AlgorithmConfig(adv_estimator="grpo")
        controller = KLController(settings.kl_ctrl)
        batch, metrics = add_advantages(batch, settings, controller, decode=_no_text)
    with timed("rows for updates"):
        parts = mini_batches(
            batch.train, batch.group_ids_B, prompts=len(data.prompts) // MINI_BATCHES, rng=None
        )
        metrics |= await policy.update(list(parts))
    with timed("samples and metrics"):
        telemetry.log_step(1, scored, batch, metrics, StepClock())
    start = time.perf_counter()
    telemetry.close()
    timed.seconds["samples, beside the next step"] = time.perf_counter() - start
    return timed.seconds


def _scored(rollouts: Rollouts, rewards: RewardBatch) -> ScoredRollouts:
    chosen_B = np.ones(len(rollouts.responses), dtype=bool)
    return ScoredRollouts(step=0, rollouts=rollouts, rewards=rewards, chosen_B=chosen_B)


def _no_text(_: Any) -> str:
    raise AssertionError("no reward scores steps here")


BESIDE = "samples, beside the next step"


def measured(responses: int, rounds: int) -> dict[str, Any]:
    """Return medians over rounds, in which the layouts take turns; one round before warms up."""
    data = make_data(responses)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in LAYOUTS}
    for number in range(rounds + 1):
        for name, assignment in LAYOUTS.items():
            with tempfile.TemporaryDirectory() as folder:
                gc.collect()
                seconds = asyncio.run(step(data, assignment, Path(folder)))
            if number:
                runs[name].append(seconds)
    return {name: _summary(rows, responses) for name, rows in runs.items()}


def _summary(rows: list[dict[str, float]], responses: int) -> dict[str, Any]:
    stages: dict[str, float] = {}
    for stage in rows[0]:
        stages[stage] = round(statistics.median(row[stage] for row in rows), 3)
    totals = [sum(row.values()) - row[BESIDE] for row in rows]
    seconds = statistics.median(totals)
    step_s = STEP_S * responses / STEP_RESPONSES
    return {
        "seconds": round(seconds, 3),
        "seconds_least_most": [round(min(totals), 3), round(max(totals), 3)],
        "step_s": round(step_s, 1),
        "share_of_step": round(seconds / step_s, 5),
        "share_of_330_s": round(seconds / STEP_S, 5),
        "stages": stages,
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--responses", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--label", default="now", help="entry of the result file to replace")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for responses in arguments.responses:
        results[str(responses)] = measured(responses, arguments.rounds)
        for layout, numbers in results[str(responses)].items():
            print(
                f"{responses} responses, {layout}: {numbers['seconds']:.2f} s,"
                f" {numbers['share_of_step']:.2%} of a step of {numbers['step_s']} s;"
                f" {numbers['stages']}",
                flush=True,
            )
    stored = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    stored[arguments.label] = {"rounds": arguments.rounds, "responses": results}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
