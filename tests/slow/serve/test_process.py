"""`python -m rmrl.main_serve` in a process of its own, with a real model."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.offline.test_rewards import added
from tests.patience import PATIENCE_S
from tests.trainer.job import descendants, still_running

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_S = 240.0
ENDS_S = 120.0


@dataclass(slots=True)
class Server:
    """A running server; what it prints goes to a file."""

    process: subprocess.Popen[bytes]
    log: Path
    address: str = ""

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until(self, code: int, *, path: str = "/readyz") -> httpx.Response:
        """Wait until the path answers with the code."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            assert self.process.poll() is None, self.printed()[-3000:]
            port = re.search(r"listening on (http://\S+)", self.printed())
            if port:
                self.address = port[1]
                answer = httpx.get(self.address + path, timeout=PATIENCE_S)
                if answer.status_code == code:
                    return answer
            time.sleep(0.2)
        raise AssertionError(f"{path} never answered {code}: {self.printed()[-3000:]}")

    def wait_for_rows(self, count: int) -> None:
        """Wait until this number of responses is being scored."""
        end = time.monotonic() + LIMIT_S
        while f"rmrl_queue_rows {count:.1f}" not in httpx.get(f"{self.address}/metrics").text:
            assert time.monotonic() < end
            time.sleep(0.02)

    def ended(self) -> int:
        """Wait for the end of the process and return its exit code; a process that does not end
        prints where its threads stand."""
        try:
            return self.process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(30)
            raise AssertionError(f"the server did not end: {self.printed()[-9000:]}") from None

    def post(self, rows: list[dict[str, Any]], **body: Any) -> httpx.Response:
        return httpx.post(f"{self.address}/v1/score", json={"rows": rows, **body}, timeout=LIMIT_S)


@contextmanager
def server(folder: Path, *keys: str) -> Iterator[Server]:
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "rmrl.main_serve", "serve.port=0", *keys],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONFAULTHANDLER": "1"},
            stdout=out,
            stderr=out,
        )
    try:
        yield Server(process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def keys_of(model: Path) -> list[str]:
    """The rule gsm8k and a scalar model on the engine hf."""
    return [
        "reward.models=[gsm8k,quality]",
        f"reward.specs.quality.path={model}",
        "reward.specs.quality.kind=bradley_terry",
        "reward.engine.name=hf",
        "reward.rule_workers=1",
        "trainer.device=cpu",
    ]


def some_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "prompt": f"What is {i} + 2?",
            "response": f"It is #### {i + 2 + i % 2}" + " indeed" * (i % 5),
            "ground_truth": str(i + 2),
        }
        for i in range(count)
    ]


def test_scores_are_those_of_rmrl_score_and_a_killed_engine_comes_back(
    tmp_path: Path, tiny_reward_llama: Path
) -> None:
    keys = keys_of(tiny_reward_llama)
    rows = some_rows(40)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored = subprocess.run(
        [sys.executable, "-m", "rmrl.main_score", "data.files=rows.jsonl", "out=out.jsonl", *keys],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert scored.returncode == 0, scored.stderr[-3000:]
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    expected = [added(json.loads(line)) for line in lines]
    with server(tmp_path, *keys, "serve.probe_s=0.2") as running:
        running.wait_until(200, path="/healthz")
        running.wait_until(200)
        answer = running.post(rows)
        assert [added(row) for row in answer.json()["rows"]] == expected  # bit-equal
        engine = engine_process(running)
        engine.kill()
        lost = running.wait_until(503)
        assert "the engine of quality is lost" in lost.json()["reasons"][0]
        running.wait_until(200)
        again = running.post(rows)
        assert [added(row) for row in again.json()["rows"]] == expected
        # Killed under its request: it is started once more, and the request is answered.
        family = descendants(running.process.pid)
        killed = engine_process(running)
        killed.suspend()
        with ThreadPoolExecutor(1) as thread:
            post = thread.submit(running.post, rows)
            running.wait_for_rows(len(rows))
            assert not post.done()
            killed.kill()
            answered = post.result(LIMIT_S)
        assert answered.status_code == 200
        assert engine_process(running).pid != killed.pid
        assert [added(row) for row in answered.json()["rows"]] == expected
        metrics = httpx.get(f"{running.address}/metrics").text
        assert 'rmrl_engine_events_total{engine="quality",event="loads"}' in metrics
        running.process.send_signal(signal.SIGINT)
        assert running.ended() == 130, running.printed()[-3000:]
    assert not still_running(family)


def engine_process(running: Server) -> psutil.Process:
    """The process of the engine: the child that has the model in memory."""
    children = psutil.Process(running.process.pid).children(recursive=True)
    engines = [child for child in children if "local_child" in " ".join(child.cmdline())]
    assert engines, [child.cmdline() for child in children]
    return engines[-1]


def test_sigterm_during_requests_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\ndef compute_score(data_source, solution_str, ground_truth):\n"
        "    time.sleep(0.2)\n    return float(solution_str)\n"
    )
    keys = (
        "reward.models=[slow]",
        f"reward.functions_dir={tmp_path}",
        "reward.rule_workers=2",
        "trainer.device=cpu",
    )
    with server(tmp_path, *keys) as running:
        running.wait_until(200)

        async def post(http: httpx.AsyncClient, number: int) -> tuple[int, Any]:
            body = {"rows": [{"prompt": "p", "response": str(number)}] * 4}
            answer = await http.post(f"{running.address}/v1/score", json=body)
            return answer.status_code, answer.json()

        async def load() -> list[tuple[int, Any] | BaseException]:
            async with httpx.AsyncClient(timeout=60) as http:
                first = [asyncio.create_task(post(http, i)) for i in range(20)]
                # 80 responses of 0.2 s for two workers: 8 s
                while (
                    "rmrl_queue_rows 80.0"
                    not in (await http.get(f"{running.address}/metrics")).text
                ):
                    assert not all(task.done() for task in first)
                    await asyncio.sleep(0.02)
                running.process.terminate()
                await asyncio.sleep(0.2)
                later = [asyncio.create_task(post(http, i)) for i in range(20, 25)]
                return await asyncio.gather(*first, *later, return_exceptions=True)

        outcomes = asyncio.run(load())
        assert running.ended() == 130, running.printed()[-3000:]
    for number, outcome in enumerate(outcomes[:20]):
        assert isinstance(outcome, tuple), outcome
        code, answer = outcome
        assert code == 200, answer
        assert [row["reward"] for row in answer["rows"]] == [float(number)] * 4
    for outcome in outcomes[20:]:
        assert not isinstance(outcome, tuple) or outcome[0] == 503
    assert "finishing" in running.printed()
