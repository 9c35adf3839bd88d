"""`rmrl serve` under load: rows per second beside `rmrl score`, latencies, and what goes wrong.

    python -m benchmarks.serve --only speed       rows per second with 1, 8, 64 and 256 clients
    python -m benchmarks.serve --only speed --request-rows 32
    python -m benchmarks.serve --only faults      slow clients, 10 MB bodies, cancelled requests, a
                                                  killed engine
    python -m benchmarks.serve --only memory --minutes 30

The rows are those of benchmarks.score_rows. A case is a reward: the rule math_verify in two worker
processes, the scalar model MiniLM-L12 on engine hf (.models/ms-marco-minilm, `make models`), or `scripted`: the
same inputs for an engine without a model, whose calls take 20 ms in a process of their own.

speed: in every round `rmrl score` and a server score the same rows, in turns; the server was started
once and gets requests of 4 rows (`--request-rows`). Seconds of `rmrl score` are those of its process, those of the
same with a hundredth of the rows subtracted. The ratio is (the server's rows per second / those of
`rmrl score`), per round; at 1 the server is as fast. Clients, server, workers and engine share the
machine's cores.

Everything is written to results/serve.json, one entry per part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil

from benchmarks.score_rows import RULES, WORKERS, made_up
from benchmarks.serve_clients import Clients, Connection, Load, bodies_of
from tests.support import fakes

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / ".models" / "ms-marco-minilm"
CASES = {
    "rule": ["reward.models=[math_verify]"],
    "gsm8k": ["reward.models=[gsm8k]"],
    "scalar": [
        "reward.models=[scalar]",
        f"reward.specs.scalar={{path: {MODEL}, kind: bradley_terry}}",
        "reward.engine.residency=resident",
        "reward.engine.name=hf",
    ],
    "scripted": [
        "reward.models=[scalar]",
        f"reward.specs.scalar={{path: {MODEL}, kind: bradley_terry}}",
        "reward.engine.residency=resident",
        f"reward.engine.name={fakes.REWARD_ENGINE}",
        "reward.engine.kwargs={delay_s: 0.02}",
    ],
}
CLIENTS = (1, 8, 64, 256)
REQUEST_ROWS = 4
"""Of a request, unless `--request-rows` says more: a trainer that sends its batch at once sends
dozens, one that sends each response when it is ready sends one."""
START_S = 300.0
SCORE_LIMIT_S = 1800.0
MIB = 2**20


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["speed", "faults", "memory"], required=True)
    parser.add_argument("--case", choices=list(CASES), default="rule")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="*", default=list(CLIENTS))
    parser.add_argument(
        "--request-rows", type=int, default=REQUEST_ROWS, help="rows of a request in part speed"
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "serve.json"
    )
    given = parser.parse_args()
    rows = list(made_up(given.rows, Random(0), RULES["math_verify"]))
    print(f"load of the machine: {os.getloadavg()}", file=sys.stderr)
    # so that a server does not outlive a measurement that is ended
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    measurements: Iterator[dict[str, Any]]
    entry = given.case
    if given.only == "speed":
        bodies = bodies_of(rows, given.request_rows)
        measurements = speed(given.case, rows, bodies, clients=given.clients, rounds=given.rounds)
        if given.request_rows != REQUEST_ROWS:
            entry = f"{given.case}_{given.request_rows}_rows_a_request"
    elif given.only == "faults":
        measurements = faults(given.case, rows)
    else:
        measurements = memory(given.case, rows, given.minutes)
    for measured in measurements:
        result: dict[str, Any] = {}
        if given.out.exists():
            result = json.loads(given.out.read_text(encoding="utf-8"))
        result.setdefault(given.only, {})[entry] = measured
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(measured), file=sys.stderr, flush=True)


# --- processes


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    port: int
    process: psutil.Process

    def memory_mib(self) -> dict[str, float]:
        """Resident memory of the server's own process, and with its workers and engines."""
        own = self.process.memory_info().rss
        total = own
        for child in self.process.children(recursive=True):
            try:
                total += child.memory_info().rss
            except psutil.Error:
                continue
        return {"server": own / MIB, "all": total / MIB}

    def engine(self) -> psutil.Process:
        """The process of the engine: the youngest one that could be it, with or without Ray."""
        engines: list[psutil.Process] = []
        for child in self.process.children(recursive=True):
            words = child.cmdline()
            # Ray adds the name of the method while it runs.
            of_ray = any(word.startswith("ray::SyncProcess") for word in words)
            if of_ray or "rmrl.cluster.local_child" in words:
                engines.append(child)
        if not engines:
            raise RuntimeError("the server has no process of an engine")
        return max(engines, key=psutil.Process.create_time)


def command(entry: str, case: str, *more: str) -> list[str]:
    """Command line of an entry with the rewards of a case."""
    return [
        sys.executable,
        "-m",
        f"rmrl.{entry}",
        *CASES[case],
        f"reward.rule_workers={WORKERS}",
        f"reward.functions_dir={ROOT}/reward_functions",
        "trainer.device=cpu",
        *more,
    ]


def environment() -> dict[str, str]:
    """Variables of a measured process."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def server(case: str, *more: str) -> Iterator[Server]:
    """Start a server on a free port and wait until it is ready; end it afterwards."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command("main_serve", case, "serve.port=0", *more),
            cwd=ROOT,
            env=environment(),
            stdout=log,
            stderr=log,
        )
        try:
            deadline = time.monotonic() + START_S
            port = 0
            while not port:
                log.seek(0)
                text = log.read().decode(errors="replace")
                match = re.search(r"listening on http://\S+:(\d+)", text)
                port = int(match[1]) if match else 0
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start:\n{text[-3000:]}")
                time.sleep(0.1)
            asyncio.run(until_ready(port, START_S))
            yield Server(port, psutil.Process(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)


async def until_ready(port: int, timeout_s: float) -> float:
    """Wait until /readyz answers 200; return the seconds."""
    began = time.monotonic()
    async with asyncio.timeout(timeout_s):
        while True:
            connection = Connection(port)
            try:
                status, _ = await connection.request("GET", "/readyz")
            except (OSError, asyncio.IncompleteReadError):
                status = 0
            connection.close()
            if status == 200:
                return time.monotonic() - began
            await asyncio.sleep(0.05)


def processor_s(process: psutil.Process) -> dict[str, float]:
    """Return the processor time that a server and its workers have used: unlike rows per second it
    says the same on a busy machine."""
    own = process.cpu_times()
    workers = 0.0
    for worker in process.children(recursive=True):
        times = worker.cpu_times()
        workers += times.user + times.system
    return {"server": own.user + own.system, "workers": workers}


def seconds_of_score(case: str, rows: list[dict[str, Any]], folder: Path) -> float:
    """Seconds of a process of `rmrl score`."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    files = [f"data.files={path}", f"out={folder}/scored.jsonl", "overwrite=true"]
    began = time.perf_counter()
    subprocess.run(
        command("main_score", case, *files, "trainer.log_level=warning"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=SCORE_LIMIT_S,
    )
    return time.perf_counter() - began


# --- the parts


def speed(
    case: str,
    rows: list[dict[str, Any]],
    bodies: list[bytes],
    *,
    clients: list[int],
    rounds: int,
) -> Iterator[dict[str, Any]]:
    """Rows per second of both sides, and ratios by number of clients; after every round."""
    few = rows[: max(len(rows) // 100, 1)]
    scores: list[float] = []
    served: dict[str, list[dict[str, Any]]] = {str(count): [] for count in clients}
    with server(case) as running, tempfile.TemporaryDirectory() as folder:
        asyncio.run(Clients(port=running.port, count=8, bodies=bodies[:16]).run())
        for number in range(rounds):
            order = list(clients) if number % 2 else list(reversed(clients))
            for count in order:
                before = processor_s(running.process)
                load = asyncio.run(Clients(port=running.port, count=count, bodies=bodies).run())
                used = processor_s(running.process)
                numbers = load.numbers(len(rows))
                for part, seconds in used.items():
                    milliseconds = 1000 * (seconds - before[part]) / len(rows)
                    numbers[f"{part}_processor_ms_per_row"] = round(milliseconds, 3)
                served[str(count)].append(numbers)
            many_s = seconds_of_score(case, rows, Path(folder))
            few_s = seconds_of_score(case, few, Path(folder))
            scores.append(round((len(rows) - len(few)) / (many_s - few_s), 1))
            yield {
                "rows": len(rows),
                "rows_per_request": round(len(rows) / len(bodies), 1),
                "score_rows_per_s": scores,
                "clients": served,
                "ratio_by_clients": ratios_of(served, scores),
            }


def ratios_of(served: dict[str, list[dict[str, Any]]], scores: list[float]) -> dict[str, Any]:
    """The server's rows per second / those of `rmrl score`, per round, and their median."""
    ratios: dict[str, Any] = {}
    for count, measured in served.items():
        shares = [each["rows_per_s"] / score for each, score in zip(measured, scores, strict=True)]
        ratios[count] = {
            "median": round(statistics.median(shares), 3),
            "rounds": [round(share, 3) for share in shares],
        }
    return ratios


def faults(case: str, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What clients see beside slow and cancelling ones, with large bodies, and while an engine is
    killed. An engine is killed in cases that have one."""
    bodies = bodies_of(rows[:256], REQUEST_ROWS)
    with server(case, "serve.body_timeout_s=5") as running:
        alone = asyncio.run(Clients(port=running.port, count=8, bodies=bodies).run())
        result = {"8_clients_alone": alone.numbers(len(bodies) * REQUEST_ROWS)}
        result["beside_64_slow_clients"] = asyncio.run(beside_slow(running, bodies))
        yield result
        result["half_cancelled"] = asyncio.run(cancelled(running, bodies, alone))
        yield result
        if case != "rule":
            result["engine_killed"] = asyncio.run(killed(running, bodies, alone))
            yield result
        result["bodies_of_10_mb"] = asyncio.run(large(running))
        yield result


async def beside_slow(running: Server, bodies: list[bytes]) -> dict[str, Any]:
    """8 clients while 64 others send one body each, in parts 0.2 s apart: 13 s for a body that may
    take 5."""
    slow = Clients(port=running.port, count=64, bodies=bodies[:64], trickle_s=0.2)
    waiting = asyncio.create_task(slow.run())
    await asyncio.sleep(0.5)
    load = await Clients(port=running.port, count=8, bodies=bodies).run()
    numbers = load.numbers(len(bodies) * REQUEST_ROWS)
    slow_load = await waiting
    return {**numbers, "slow_codes": dict(slow_load.codes)}


async def large(running: Server) -> dict[str, Any]:
    """4 bodies of 10 MB from 4 clients, one response each, then one of 20 MB."""
    text = "word " * 2_000_000
    row = {"prompt": "How much?", "response": text, "ground_truth": "1"}
    bodies = bodies_of([row] * 4, 1)
    load = await Clients(port=running.port, count=4, bodies=bodies).run()
    too_large = bodies_of([{**row, "response": text * 2}], 1)
    refused = await Clients(port=running.port, count=1, bodies=too_large).run()
    return {**load.numbers(4), "of_20_mb": dict(refused.codes), "memory_mib": rounded(running)}


async def cancelled(running: Server, bodies: list[bytes], alone: Load) -> dict[str, Any]:
    """64 clients, every second request of which is cancelled 20 ms after it was sent."""
    load = await Clients(port=running.port, count=64, bodies=bodies, cancel_every=2).run()
    numbers = load.numbers(len(load.answers) * REQUEST_ROWS)
    return {**numbers, **await settled(running), "wrong_answers": wrong(load, alone)}


async def killed(running: Server, bodies: list[bytes], alone: Load) -> dict[str, Any]:
    """8 clients; the engine's process is killed (kill -9) 0.1 s after they began."""
    work = asyncio.create_task(Clients(port=running.port, count=8, bodies=bodies).run())
    await asyncio.sleep(0.1)
    running.engine().kill()
    began = time.monotonic()
    load = await work
    await until_ready(running.port, START_S)
    ready_s = time.monotonic() - began
    after = await Clients(port=running.port, count=8, bodies=bodies[:16]).run()
    return {
        **load.numbers(len(load.answers) * REQUEST_ROWS),
        "seconds_until_ready_and_all_answered": round(ready_s, 2),
        "wrong_answers": wrong(load, alone),
        "without_reward": sum(missing(answer) for answer in load.answers.values()),
        "codes_afterwards": dict(after.codes),
    }


def missing(answer: dict[str, Any]) -> int:
    """Rows of an answer without a reward."""
    return sum(row["reward"] is None for row in answer["rows"])


def wrong(load: Load, alone: Load) -> int:
    """Answers whose rewards differ from those that 8 clients alone got for the same body, rows
    without a reward aside."""
    count = 0
    for place, answer in load.answers.items():
        for row, expected in zip(answer["rows"], alone.answers[place]["rows"], strict=True):
            reward = row["reward"]
            if reward is not None and abs(reward - expected["reward"]) > 1e-4:
                count += 1
    return count


async def settled(running: Server) -> dict[str, Any]:
    """Wait, at most 10 s, until no rows are queued; return how many are."""
    deadline = time.monotonic() + 10
    queued = -1
    while queued and time.monotonic() < deadline:
        connection = Connection(running.port)
        _, content = await connection.request("GET", "/v1/rewards")
        connection.close()
        queued = json.loads(content)["queue_rows"]
        await asyncio.sleep(0.05)
    return {"rows_left_in_the_queue": queued}


def rounded(running: Server) -> dict[str, float]:
    """Memory of the server in whole MiB."""
    return {name: round(value) for name, value in running.memory_mib().items()}


def memory(case: str, rows: list[dict[str, Any]], minutes: float) -> Iterator[dict[str, Any]]:
    """Resident memory over time under a steady load of 8 clients, every tenth request of which is
    cancelled."""
    bodies = bodies_of(rows, REQUEST_ROWS)
    samples: list[dict[str, float]] = []

    async def watched(running: Server) -> Load:
        until = time.monotonic() + minutes * 60
        clients = Clients(port=running.port, count=8, bodies=bodies, cancel_every=10, until=until)
        work = asyncio.create_task(clients.run())
        began = time.monotonic()
        while not work.done():
            minute = (time.monotonic() - began) / 60
            samples.append({"minute": round(minute, 2), **rounded(running)})
            await asyncio.sleep(min(minutes, 5.0))
        return await work

    with server(case) as running:
        load = asyncio.run(watched(running))
    numbers = load.numbers(len(load.latencies_s) * REQUEST_ROWS)
    yield {
        "minutes": minutes,
        **numbers,
        **growth(samples),
        "samples": samples[:: max(len(samples) // 60, 1)],
    }


def growth(samples: list[dict[str, float]]) -> dict[str, Any]:
    """Medians of the second and the last quarter of the time, in MiB; the first quarter warms
    up."""
    quarter = max(len(samples) // 4, 1)
    result: dict[str, Any] = {}
    for name in ("server", "all"):
        second = statistics.median(each[name] for each in samples[quarter : 2 * quarter])
        last = statistics.median(each[name] for each in samples[-quarter:])
        result[f"{name}_mib"] = {"second_quarter": second, "last_quarter": last}
    return result


if __name__ == "__main__":
    main()
