"""Checks of whole jobs: `python -m rmrl.main_ppo` with a rule, a judge and a scalar model on one
device, and with its engines killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gpu_check.model import write_scorer
from benchmarks.gpu_check.rig import Failed, Numbers, Rig, Skip, require
from rmrl.data.write import write_rows
from rmrl.inference.vllm import compat

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 600.0
"""Of a job. On an H100 with 16 cores three cold starts of vLLM took 60 to 95 s each and the job 278
s; the checks that kill an engine start a fourth one."""
_RULE = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return sum(c in "13579" for c in solution_str) / max(len(solution_str), 1)
"""
_JUDGE = """
SPEC = {"kind": "generative", "sampling": {"temperature": 0.0, "max_tokens": 4}}


def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    return [[{"role": "user", "content": "w7 " + text[:200]}] for text in text_responses]


def rm_postprocess(results):
    return [len(text) / 10 for text in results]
"""


@dataclass(frozen=True, slots=True)
class Job:
    """Data, rewards and models of the jobs of a rig."""

    rig: Rig
    folder: Path
    scorer: Path

    @classmethod
    def prepared(cls, rig: Rig) -> Job:
        """Write what the jobs read. Raises Skip without Ray or vLLM."""
        for name in ("ray", "vllm"):
            if importlib.util.find_spec(name) is None:
                raise Skip(f"{name} is not installed")
        folder = Path(rig.folder) / "jobs"
        functions = folder / "functions"
        functions.mkdir(parents=True, exist_ok=True)
        (functions / "odd.py").write_text(_RULE, encoding="utf-8")
        (functions / "judge.py").write_text(_JUDGE, encoding="utf-8")
        rows: list[dict[str, Any]] = []
        for number in range(32):
            turn = {"role": "user", "content": f"w{number + 10} w{number + 20} w{number + 30}"}
            rows.append({"prompt": [turn], "data_source": "words"})
        write_rows(folder / "train.parquet", rows, overwrite=True)
        return cls(rig, folder, write_scorer(rig.model, folder / "scorer"))

    def settings(self, out: str, **changed: object) -> list[str]:
        """The command line's entries; `changed` names keys with __ for dots."""
        rig = self.rig
        keys: dict[str, object] = {
            "data.train_files": self.folder / "train.parquet",
            "data.train_batch_size": 8,
            "data.max_prompt_length": 64,
            "data.max_response_length": min(rig.longest, 128),
            "actor_rollout_ref.model.path": rig.model,
            "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
            "actor_rollout_ref.rollout.n": 4,
            "actor_rollout_ref.rollout.dtype": rig.dtype,
            "actor_rollout_ref.rollout.gpu_memory_utilization": 0.25,
            "actor_rollout_ref.rollout.kv_cache_bytes": 2**26,
            "algorithm.adv_estimator": "grpo",
            "reward.models": "[odd,judge,quality]",
            "reward.weights": "[1.0,0.5,0.25]",
            "reward.functions_dir": self.folder / "functions",
            "reward.rule_workers": 1,
            "reward.engine.gpu_memory_utilization": 0.2,
            "reward.engine.kv_cache_bytes": 2**26,
            "reward.engine.max_model_len": 512,
            "reward.specs.judge.path": rig.model,
            "reward.specs.quality.path": self.scorer,
            "reward.specs.quality.kind": "bradley_terry",
            "trainer.n_gpus_per_node": 1,
            "trainer.device": rig.device,
            "trainer.threads_per_process": 1,
            "trainer.total_training_steps": 2,
            "trainer.default_local_dir": self.folder / out,
        }
        keys |= {key.replace("__", "."): value for key, value in changed.items()}
        return [f"{key}={value}" for key, value in keys.items()]

    def start(self, out: str, **changed: object) -> subprocess.Popen[bytes]:
        """Start a job in a process group of its own; it writes <out>.txt."""
        with (self.folder / f"{out}.txt").open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "rmrl.main_ppo", *self.settings(out, **changed)],
                cwd=ROOT,
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(
        self, process: subprocess.Popen[bytes], out: str, *, patience_s: float = LIMIT_S
    ) -> list[dict[str, float]]:
        """Wait for the end and return the metrics of the steps. Raises Failed with the end of what
        the job printed where it fails or takes too long."""
        try:
            code = process.wait(patience_s)
        except subprocess.TimeoutExpired:
            end_all(process)
            code = -1
        printed = (self.folder / f"{out}.txt").read_text(encoding="utf-8", errors="replace")
        if code != 0:
            raise Failed(f"the job ended with {code}: {printed[-1500:]}", {"code": float(code)})
        lines = (self.folder / out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return list(map(json.loads, lines))


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a job with all processes below it."""
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    for child in family:
        if child.is_running():
            child.kill()
    process.wait(30.0)


def job_steps(rig: Rig) -> Numbers:
    """Two steps of a job: seconds of each stage, the transport of new weights, and the distance
    between the log-probabilities of sampling and of training."""
    job = Job.prepared(rig)
    steps = job.finish(job.start("plain"), "plain")
    numbers = {"steps": float(len(steps))}
    for key, value in steps[-1].items():
        if key.startswith(("time/", "perf/publish/")) and isinstance(value, int | float):
            numbers[key.removeprefix("time/")] = float(value)
    difference = steps[-1].get("policy/rollout_logprob_diff", float("nan"))
    numbers["rollout_logprob_diff"] = float(difference)
    require(len(steps) == 2, "the job did not make two steps", numbers)
    require(difference < 0.1, "sampling and training disagree", numbers)
    if rig.device == "cuda" and compat.transfers_weights():
        require("perf/publish/ipc_s" in numbers, "weights did not travel by ipc", numbers)
    return numbers


def killed_rollout(rig: Rig) -> Numbers:
    """kill -9 of the rollout engine while it samples: it is started again and the run goes on."""
    return _killed(rig, "ray::AsyncProcess", "rollout")


def killed_judge(rig: Rig) -> Numbers:
    """kill -9 of a reward engine: it is started again and the run goes on."""
    return _killed(rig, "ray::SyncProcess", "reward")


def _killed(rig: Rig, title: str, kind: str) -> Numbers:
    job = Job.prepared(rig)
    out = f"killed-{kind}"
    process = job.start(out, trainer__total_training_steps=4)
    started = time.monotonic()
    metrics = job.folder / out / "metrics.jsonl"
    try:
        while not (metrics.exists() and metrics.stat().st_size):
            if process.poll() is not None or time.monotonic() - started > LIMIT_S:
                break
            time.sleep(0.2)
        victims = engines(process.pid, title, kind)
        if victims:
            victims[0].kill()
        left_s = max(0.0, started + LIMIT_S - time.monotonic())
        steps = job.finish(process, out, patience_s=left_s)
    finally:
        if process.poll() is None:
            end_all(process)
    numbers = {"steps": float(len(steps)), "killed": float(bool(victims))}
    require(bool(victims), f"no {kind} engine was there to be killed", numbers)
    require(len(steps) == 4, "the run did not go on to its end", numbers)
    return numbers


def engines(pid: int, title: str, kind: str) -> list[psutil.Process]:
    """Processes of a job with an engine of that kind, the largest first."""
    sized: list[tuple[int, psutil.Process]] = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            command = " ".join(process.cmdline())
            is_engine = "VLLM_ENABLE_V1_MULTIPROCESSING" in process.environ()
            size = process.memory_info().rss
        except psutil.Error:
            continue
        if command.startswith(title) and (kind == "rollout" or is_engine):
            sized.append((size, process))
    return [process for _, process in sorted(sized, key=lambda pair: -pair[0])]
