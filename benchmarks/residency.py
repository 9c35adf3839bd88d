"""Three different models, used in a row in memory that holds one: the peak of their processes
against the largest model alone.

    python benchmarks/residency.py --judge .models/smollm2 --scalar .models/ms-marco-minilm --out
    benchmarks/results/residency.json

The third model is a copy of the judge with other weights, made in a temporary folder. A budget that
holds one engine makes the residency unload each before the next is loaded; then the same under a
budget that holds all of them, where nothing is swapped after the first step. Memory is the
proportional set size (shared pages are counted once) of all engine processes and their children,
sampled while they load and score. What parking costs is what the loads took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from rmrl.cluster.devices import cores
from rmrl.cluster.processes import RayHost
from rmrl.cluster.session import ray_session
from rmrl.config.schema import RewardEngineConfig
from rmrl.inference.environment import engine_environment
from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest, PoolingRequest
from rmrl.logs import command_log
from rmrl.rewards.residency import Budget, EnginePlan, Residency, Room, plan_engines, sized
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.tokenizer import load_tokenizer
from rmrl.types import Metrics, Sampling

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 900.0
MIB = 2**20
TEXT = "The cat sat on the mat and counted: seven plus eight is fifteen, while it rained outside. "


class Watch:
    """Samples the memory of all engine processes of this Ray session; `peak` since the last
    `reset`."""

    def __init__(self, interval_s: float = 0.1) -> None:
        self.peak = 0
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._before = {process.pid for process in ray_workers()}

    def reset(self) -> None:
        self.peak = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(10.0)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            family = [
                p
                for worker in ray_workers()
                if worker.pid not in self._before
                for p in with_children(worker)
            ]
            self.peak = max(self.peak, sum(proportional_bytes(p.pid) for p in family))


def ray_workers() -> list[psutil.Process]:
    """Processes that hold an object of ours; idle Ray workers have another name."""
    mine = psutil.Process().children(recursive=True)
    return [p for p in mine if command(p).startswith("ray::SyncProcess")]


def command(process: psutil.Process) -> str:
    """The first word of its command line; "" when it is gone."""
    with suppress(psutil.Error):
        return "".join(process.cmdline()[:1])
    return ""


def with_children(process: psutil.Process) -> list[psutil.Process]:
    """A process and all below it; [] when it is gone."""
    with suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


def proportional_bytes(pid: int) -> int:
    """Pss of /proc/<pid>/smaps_rollup; 0 when the process is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def other_weights(source: Path, folder: Path) -> Path:
    """A copy of a checkpoint whose weights are scaled by 1.01: as large, and not the same file."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    for file in folder.glob("*.safetensors"):
        save_file(
            {name: tensor * 1.01 for name, tensor in load_file(file).items()},
            file,
            metadata={"format": "pt"},
        )
    return folder


def reward(name: str, path: Path, runner: str, args: argparse.Namespace) -> RewardSpec:
    """A reward with one vLLM engine that is unloaded when it is put away."""
    settings = RewardEngineConfig(
        max_model_len=512, kv_cache_bytes=args.kv_cache_mb * MIB, max_num_seqs=32
    )
    engine = EngineSpec(
        path=str(path), runner=runner, name=settings.name, dtype=settings.dtype, max_model_len=settings.max_model_len,  # type: ignore[arg-type]
        max_num_seqs=settings.max_num_seqs, max_num_batched_tokens=settings.max_num_batched_tokens, tensor_parallel_size=1,
        gpu_memory_utilization=settings.gpu_memory_utilization, kv_cache_bytes=settings.kv_cache_bytes, device="cpu", threads=args.threads,
    )  # fmt: skip
    kind = "generative" if runner == "generate" else "bradley_terry"
    return RewardSpec(
        name=name,
        kind=kind,
        weight=1.0,
        engines={"main": engine},
        put_away="unload",
        load_timeout_s=DEADLINE_S,
    )


def requests(plan: EnginePlan, count: int) -> tuple[str, list[Any]]:
    """The method and its requests: numbered texts of one length."""
    tokenizer = load_tokenizer(plan.spec.path, trust_remote_code=False)
    rows = [tuple(tokenizer(f"{i}. {TEXT * 3}")["input_ids"]) for i in range(count)]
    if plan.spec.runner == "generate":
        return "generate", [
            GenerateRequest(row, Sampling(max_tokens=16, temperature=0.0)) for row in rows
        ]
    return "classify", [PoolingRequest(row) for row in rows]


async def one_step(residency: Residency, work: Mapping[Any, tuple[str, list[Any]]]) -> float:
    """All engines once, in the order that swaps least, the next one's weights read ahead;
    seconds."""
    started = time.perf_counter()
    left = residency.order()
    while left:
        key, *left = residency.order(left)
        async with residency.use(key) as engine:
            if left:
                residency.read_ahead(left[0])
            await engine.call(*work[key], timeout_s=DEADLINE_S)
    await residency.settle()
    return time.perf_counter() - started


async def run(
    plans: Sequence[EnginePlan], budget: int, watch: Watch, args: argparse.Namespace
) -> dict[str, Any]:
    """`args.steps` steps with engines of `plans` in `budget` bytes: peak, seconds per step, and
    what was swapped."""
    environment = engine_environment(device="cpu", threads=args.threads) | {"PYTHONPATH": str(ROOT)}
    host = RayHost(environment=environment)
    residency = Residency(lambda _: host, plans, budget=Budget({"": Room(budget, budget)}))
    work = {plan.key: requests(plan, args.items) for plan in plans}
    watch.reset()
    seconds: list[float] = []
    metrics: Metrics = {}
    try:
        for _ in range(args.steps):
            seconds.append(await one_step(residency, work))
            for key, value in residency.take_metrics().items():
                metrics[key] = value if key.endswith("/bytes") else metrics.get(key, 0.0) + value
    finally:
        await residency.close()
    return {
        "budget_bytes": budget,
        "peak_bytes": watch.peak,
        "step_s": seconds,
        "swaps": summed(metrics),
        "metrics": metrics,
    }


def summed(metrics: Metrics) -> dict[str, float]:
    """Counts and seconds over all engines."""
    names = (
        "loads",
        "load_s",
        "unloads",
        "unload_s",
        "evictions",
        "freed_bytes",
        "read_ahead_bytes",
        "read_ahead_s",
    )
    return {
        name: sum(value for key, value in metrics.items() if key.endswith(f"/{name}"))
        for name in names
    }


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Each model alone, then all in a row in room for one, then in room for all."""
    copy = other_weights(Path(args.judge), folder / "other")
    specs = [
        reward("judge", Path(args.judge), "generate", args),
        reward("scalar", Path(args.scalar), "pooling", args),
    ]
    plans = sized(plan_engines([*specs, reward("other", copy, "generate", args)]))
    largest = max(plan.awake_bytes for plan in plans)
    watch = Watch()
    once = argparse.Namespace(**{**vars(args), "steps": 1})
    with watch.watching():
        alone = {plan.label: await run([plan], largest, watch, once) for plan in plans}
        in_a_row = await run(plans, largest, watch, args)
        together = await run(plans, sum(plan.awake_bytes for plan in plans), watch, args)
    peak_alone = max(result["peak_bytes"] for result in alone.values())
    return {
        "device": "cpu",
        "threads": args.threads,
        "items": args.items,
        "steps": args.steps,
        "models": {
            plan.label: {"path": Path(plan.spec.path).name, "planned_bytes": plan.awake_bytes}
            for plan in plans
        },
        "largest_alone_peak_bytes": peak_alone,
        "in_a_row_over_largest_alone": in_a_row["peak_bytes"] / peak_alone,
        "alone": alone,
        "room_for_one": in_a_row,
        "room_for_all": together,
    }


def main() -> None:
    """Parse arguments, measure, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--judge", default=".models/smollm2", help="checkpoint of a generative judge"
    )
    parser.add_argument(
        "--scalar", default=".models/ms-marco-minilm", help="checkpoint of a scalar model"
    )
    parser.add_argument("--items", type=int, default=16, help="requests per engine and step")
    parser.add_argument("--steps", type=int, default=2, help="rounds through all engines")
    parser.add_argument("--kv-cache-mb", type=int, default=256, help="KV cache of each engine")
    parser.add_argument(
        "--threads", type=int, default=0, help="CPU threads per engine; 0: all cores"
    )
    parser.add_argument(
        "--out", default="benchmarks/results/residency.json", help="where the JSON goes"
    )
    args = parser.parse_args()
    args.threads = args.threads or cores()
    args.judge, args.scalar = str(Path(args.judge).resolve()), str(Path(args.scalar).resolve())
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with command_log(), tempfile.TemporaryDirectory() as folder, ray_session({}, processes=1):
        result = asyncio.run(measure(args, Path(folder)))
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(f"three in a row against the largest alone: {result['in_a_row_over_largest_alone']:.3f}")
    for name in ("room_for_one", "room_for_all"):
        found = result[name]
        seconds = ", ".join(f"{s:.1f}" for s in found["step_s"])
        print(
            f"  {name}: peak {found['peak_bytes'] / 2**30:.2f} GiB, steps {seconds} s,"
            f" {found['swaps']['loads']:.0f} loads"
        )


if __name__ == "__main__":
    main()
