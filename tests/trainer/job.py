"""A whole training job on tiny random models: real Ray, real vLLM, real FSDP; one rule, one judge,
one scalar model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rmrl.data.write import write_rows
from tests.forks.servers import fork_of, import_path
from tests.shell import files_of_others

RULE = """
import time
from pathlib import Path

HOLD, HELD = (Path(__file__).parent.parent / name for name in ("hold", "held"))

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    while must_wait():
        HELD.touch()
        time.sleep(0.02)
    return {"score": sum(c.isalpha() for c in solution_str) / max(len(solution_str), 1), "length": len(solution_str)}

def must_wait():
    try:
        metrics, steps = HOLD.read_text().splitlines()
        return Path(metrics).read_text().count("\\n") >= int(steps)
    except OSError:
        return False
"""
"""Scores by letters. Inside the block of `Job.held` it waits for the end of the block."""
JUDGE = """
SPEC = {"kind": "generative", "sampling": {"temperature": 0.0, "max_tokens": 4}}


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    return [[{"role": "user", "content": "Rate: " + text[:40]}] for text in text_responses]


def rm_postprocess(results):
    return [len(text) / 10 for text in results]
"""
LIMIT_S = 600.0
"""Far more than anything here takes on a slow machine: a test that waits so long has failed."""
REPOSITORY = Path(__file__).resolve().parent.parent.parent
SHARED_MEMORY = Path("/dev/shm")


@dataclass(slots=True, kw_only=True)
class Job:
    """`folder` holds data, drop-ins and runs; the two checkpoints are those of
    tests/conftest.py."""

    folder: Path
    policy: Path
    scalar: Path
    overrides: dict[str, object] = field(default_factory=dict)

    def prepare(self) -> Job:
        questions = [{"role": "user", "content": f"count to {n}"} for n in range(16)]
        rows = [
            {"prompt": [q], "data_source": "counting", "reward_model": {"ground_truth": "1"}}
            for q in questions
        ]
        write_rows(self.folder / "train.parquet", rows, overwrite=True)
        functions = self.folder / "functions"
        functions.mkdir(exist_ok=True)
        (functions / "letters.py").write_text(RULE)
        (functions / "judge.py").write_text(JUDGE)
        return self

    def command(self, out: str, **changed: object) -> list[str]:
        """The command line; `changed` names keys with __ for dots."""
        keys: dict[str, object] = {
            "data.train_files": self.folder / "train.parquet",
            "data.train_batch_size": 4,
            "data.max_prompt_length": 48,
            "data.max_response_length": 12,
            "actor_rollout_ref.model.path": self.policy,
            "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
            "actor_rollout_ref.actor.optim.lr": 1e-3,
            "actor_rollout_ref.actor.fsdp_config.param_dtype": "float32",
            "algorithm.adv_estimator": "grpo",
            "actor_rollout_ref.rollout.n": 4,
            "actor_rollout_ref.rollout.dtype": "float32",
            "actor_rollout_ref.rollout.kv_cache_bytes": 2**26,
            "reward.models": "[letters]",
            "reward.functions_dir": self.folder / "functions",
            "reward.rule_workers": 1,
            "reward.engine.kv_cache_bytes": 2**26,
            "reward.engine.max_model_len": 256,
            "trainer.n_gpus_per_node": 1,
            "trainer.device": "cpu",
            "trainer.threads_per_process": 1,
            "trainer.total_training_steps": 3,
            "trainer.default_local_dir": self.folder / out,
            **self.overrides,
            **{key.replace("__", "."): value for key, value in changed.items()},
        }
        return [
            sys.executable,
            "-m",
            "rmrl.main_ppo",
            *(f"{key}={value}" for key, value in keys.items()),
        ]

    def start(self, out: str, **changed: object) -> subprocess.Popen[str]:
        """Starts the job in a process group of its own, as a terminal does."""
        return subprocess.Popen(
            self.command(out, **changed),
            cwd=REPOSITORY,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, out: str, **changed: object) -> tuple[int, str]:
        """Exit code and everything printed."""
        return finish(self.start(out, **changed))

    @contextmanager
    def held(self, out: str, *, after: int) -> Iterator[Path]:
        """Inside the block the rule of a run waits once the run has logged step `after`; a file
        that is yielded appears as soon as it does."""
        hold = self.folder / "hold"
        waiting = self.folder / "held"
        waiting.unlink(missing_ok=True)
        hold.write_text(f"{self.folder / out / 'metrics.jsonl'}\n{after}\n")
        try:
            yield waiting
        finally:
            hold.unlink()

    def lines(self, out: str, name: str = "metrics.jsonl") -> list[dict]:
        path = self.folder / out / name
        if not path.exists():
            return []
        whole, _, _ = path.read_text().rpartition("\n")  # a job writes its last line just now
        return [json.loads(line) for line in whole.splitlines()]


THREE_REWARDS = {
    "reward.models": "[letters,judge,quality]",
    "reward.weights": "[1.0,0.5,0.25]",
}


def three_rewards(policy: Path, scalar: Path) -> dict[str, object]:
    """A rule, a generative judge through a drop-in, a Bradley-Terry model."""
    return {
        **THREE_REWARDS,
        "reward.specs.judge.path": policy,
        "reward.specs.quality.path": scalar,
        "reward.specs.quality.kind": "bradley_terry",
    }


def finish(job: subprocess.Popen[str]) -> tuple[int, str]:
    """Waits for the end; a job past LIMIT_S is killed with all its processes, and the test
    fails."""
    try:
        printed, _ = job.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        family = descendants(job.pid)
        os.killpg(job.pid, signal.SIGKILL)
        for process in family:
            if process.is_running():
                process.kill()
        printed, _ = job.communicate(timeout=60)
        raise AssertionError(
            f"the job did not end within {LIMIT_S:g} s:\n{printed[-3000:]}"
        ) from None
    return job.returncode, printed


def finish_in_background(job: subprocess.Popen[str]) -> Callable[[], tuple[int, str]]:
    """Reads the output meanwhile, so that a full pipe never blocks the job."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(finish, job)
    pool.shutdown(wait=False)
    return future.result


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below `pid` now, and the forks that are what programs among them do."""
    below: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        program = psutil.Process(pid)
        children = program.children()
        fork = fork_of(program)
        if fork is not None:
            children.append(fork)
        for child in children:
            below += [child, *descendants(child.pid)]
    return below


def daemon(job: subprocess.Popen[str], name: str) -> psutil.Process:
    """Ray's process of that program, below the job."""
    programs = {}
    for process in descendants(job.pid):
        command = process.cmdline()
        programs[Path(command[0]).name if command else ""] = process
    return programs[name]


def still_running(processes: Sequence[psutil.Process], *, within_s: float = 60.0) -> list[str]:
    """Those that have not ended after a while, as text. One that has ended and that nobody has
    reaped has ended."""
    end = time.monotonic() + within_s
    while True:
        alive: list[str] = []
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
        if not alive or time.monotonic() > end:
            return alive
        time.sleep(0.05)


def shared_memory() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()}


def left_in_shared_memory(before: set[str], *, of: str = "", within_s: float = 60.0) -> set[str]:
    """Names with `of` in them that were not there before and are still there after a while, without
    those that belong to programs beside this test session."""
    end = time.monotonic() + within_s
    while True:
        left = {name for name in shared_memory() - before if of in name}
        if left:
            left -= files_of_others(SHARED_MEMORY)
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


def wait_for(condition, *, what: str, within_s: float = LIMIT_S) -> None:
    """Polls until `condition()` is true."""
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {within_s:g} s"
        time.sleep(0.1)


def run_typed(words: Sequence[str], folder: Path) -> tuple[Path, str]:
    """Runs training in `folder`, as a user types it; returns the run's folder and what it
    printed."""
    job = subprocess.Popen(
        [sys.executable, "-m", "rmrl.main_ppo", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": import_path(REPOSITORY), "HF_HUB_OFFLINE": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    code, printed = finish(job)
    assert code == 0, printed[-3000:]
    (samples,) = (folder / "runs").rglob("samples.jsonl")
    return samples.parent, printed
