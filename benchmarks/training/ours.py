"""rmrl's side: `python -m rmrl.main_ppo`, read from its metrics.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.training.job import Job
from benchmarks.training.processes import run
from rmrl.data.write import write_rows
from rmrl.telemetry import jsonl

MODEL_PHASES = ("generate", "logprobs", "values", "update", "publish")
"""Stages in which a model works or its weights travel; the rest of a step is what the controller
adds."""


def settings(job: Job, folder: Path) -> list[str]:
    """The command line's entries."""
    longest = job.max_prompt_tokens + job.max_tokens
    return [
        "reward.models=[arithmetic]",
        f"data.train_files={folder / 'train.parquet'}",
        f"data.train_batch_size={job.prompts}",
        f"data.max_prompt_length={job.max_prompt_tokens}",
        f"data.max_response_length={job.max_tokens}",
        "data.shuffle=False",
        f"actor_rollout_ref.model.path={job.model}",
        "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        f"actor_rollout_ref.rollout.n={job.n}",
        f"actor_rollout_ref.rollout.temperature={job.temperature}",
        f"actor_rollout_ref.rollout.dtype={job.dtype}",
        (
            f"actor_rollout_ref.actor.fsdp_config.param_dtype={'null' if job.dtype == 'float32' else job.dtype}"
        ),
        f"actor_rollout_ref.actor.ppo_mini_batch_size={job.prompts}",
        f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={max(2 * longest, 1024)}",
        f"actor_rollout_ref.actor.optim.lr={job.lr}",
        f"actor_rollout_ref.actor.optim.weight_decay={job.weight_decay}",
        "algorithm.adv_estimator=grpo",
        "trainer.device=cpu",
        "trainer.n_gpus_per_node=1",
        f"trainer.threads_per_process={job.threads}",
        f"trainer.total_training_steps={job.warmup + job.steps}",
        "trainer.logger=[jsonl]",
        "trainer.resume_mode=disable",
        f"trainer.seed={job.seed}",
        f"trainer.default_local_dir={folder / 'run'}",
    ]


def measure(
    job: Job, folder: Path, *, on: Sequence[int], more: Sequence[str] = ()
) -> dict[str, Any]:
    """One run of `job.warmup + job.steps` steps; `more`: further entries of the command line."""
    folder.mkdir(parents=True)
    write_rows(folder / "train.parquet", job.rows, overwrite=False)
    peak = run("rmrl.main_ppo", [*settings(job, folder), *more], on=on, log=folder / "log.txt")
    return result(list(jsonl.read(folder / "run" / "metrics.jsonl"))[job.warmup :], job, peak)


def result(steps: Sequence[dict[str, Any]], job: Job, peak: int) -> dict[str, Any]:
    """Per step: seconds, tokens, phases; and the share of the seconds in which no model works."""
    seconds = [step["time/step_s"] for step in steps]
    phases = {name: [step.get(f"time/{name}_s", 0.0) for step in steps] for name in MODEL_PHASES}
    model_s = sum(map(sum, phases.values()))
    return {
        "step_s": seconds,
        "tokens": [round(step["perf/tokens_per_s"] * step["time/step_s"]) for step in steps],
        "response_tokens": [round(step["response/length_mean"] * job.responses) for step in steps],
        "phases_s": (
            phases
            | {
                name: [step.get(f"time/{name}_s", 0.0) for step in steps]
                for name in ("score", "other")
            }
        ),
        "reward_mean": [step["reward/mean"] for step in steps],
        "not_model_share": 1.0 - model_s / sum(seconds),
        "peak_bytes": peak,
    }
