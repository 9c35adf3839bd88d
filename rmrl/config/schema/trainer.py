"""Section `trainer`: a run's length, devices and output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmrl.config.schema.fields import (
    at_least,
    changeable,
    choice,
    count_or_all,
    not_negative,
    positive,
)


@dataclass(kw_only=True, slots=True)
class TrainerConfig:
    total_epochs: int = positive(30, may_change=True)
    """Passes over the training rows."""
    total_training_steps: int | None = positive(None, may_change=True)
    """Total number of steps. null: by total_epochs."""
    project_name: str = changeable("rmrl")
    """Folder above the run's, and the trackers' project."""
    experiment_name: str = changeable("default")
    """The run's folder, and the trackers' run."""
    default_local_dir: str | None = changeable(None)
    """Output folder. null: runs/<project_name>/<experiment_name>."""
    logger: list[str] = changeable(factory=lambda: ["console", "jsonl", "tensorboard"])
    """Destinations of metrics, besides metrics.jsonl, which is always written: console, jsonl,
    tensorboard, wandb, trackio, mlflow, swanlab, or package.module:factory."""
    require_audit: bool = changeable(False)
    """Refuse rewards without an audit (`rmrl audit`), with a failed one, or changed since."""
    nnodes: int = positive(1, may_change=True)
    """Machines."""
    n_gpus_per_node: int = count_or_all(may_change=True)
    """Training processes per machine, one per GPU on CUDA, at most one per core on CPU. -1: all
    GPUs on this machine, on CPU one process that uses all cores."""
    device: str = choice("auto", among=("auto", "cuda", "cpu"), may_change=True)
    """auto, cuda or cpu."""
    seed: int = 1
    """Seed for all random draws."""
    save_freq: int | None = at_least(None, least=-1, may_change=True)
    """Steps between checkpoints. null: save at the first step that ends half an hour after the last
    checkpoint, and keep the newest two. -1: only at the end. Every run saves when it ends, also by
    an error."""
    test_freq: int = at_least(-1, least=-1, may_change=True)
    """Steps between validations. -1: never."""
    best_by: str | None = changeable(None)
    """Validation metric (val/reward, val/<component>, ...; larger is better) whose best checkpoint
    is kept beside the newest ones, as checkpoints/best. null: none."""
    early_stop: int | None = positive(None, may_change=True)
    """Stop after this many validations without a better `best_by`, which is val/reward then where
    it is null. null: never."""
    val_before_train: bool = changeable(True)
    """Validate before the first step (if data.val_files is given)."""
    val_only: bool = changeable(False)
    """Validate and stop."""
    resume_mode: str = choice("auto", among=("auto", "disable", "resume_path"), may_change=True)
    """auto (newest complete checkpoint, if any), disable (refuse a used folder), resume_path."""
    resume_from_path: str | None = changeable(None)
    """Checkpoint folder for resume_mode=resume_path."""
    max_actor_ckpt_to_keep: int | None = positive(None, may_change=True)
    """Number of newest checkpoints to keep. null: all (with save_freq=null two, with save_freq=-1
    and best_by one)."""
    log_level: str = choice("info", among=("debug", "info", "warning"), may_change=True)
    """Least message level on the console: debug, info or warning. run.log holds info and above,
    with debug that too."""
    log_val_generations: int = not_negative(0, may_change=True)
    """Validation samples printed."""
    log_sample_freq: int = at_least(10, least=-1, may_change=True)
    """Steps between displays of scored samples: one as text (console, TensorBoard), up to 16 as a
    table (wandb, trackio, mlflow, swanlab). -1: never."""
    rollout_samples_per_step: int = at_least(-1, least=-1, may_change=True)
    """Scored samples written per step. -1: all."""
    profile_steps: list[int] | None = changeable(None)
    """Steps (from 1) that torch's profiler traces in every training process, into the run's folder
    profile/: log-probabilities, updates and the weight export. null: none."""
    threads_per_process: int | None = positive(None, may_change=True)
    """CPU threads of each training process. null: cores / processes."""
    memory_budget_gb: float | None = positive(None, may_change=True)
    """Memory that the plan may use per device (CPU: of the machine). null: the memory free at
    start."""
    resource_pools: dict[str, Any] = changeable(factory=dict)
    """<name>: {nnodes, n_gpus_per_node}. Devices separate from the policy's, for rollout.pool,
    critic.pool and reward.engine.pool. On CPU, separate processes."""
    critic_warmup: int = not_negative(0)
    """Number of first steps in which only the critic learns."""
    max_staleness: int = not_negative(0)
    """Largest number of updates between the policy that sampled a batch and the policy that trains
    on the batch. 0: on-policy. 1: the next batch is sampled and scored while this one trains. More
    than 0 needs rollout.pool."""
    stall_timeout_s: float = positive(3600.0, may_change=True)
    """Deadline for a stage, in seconds. A longer stage ends the run with exit code 5."""

    @property
    def world_size(self) -> int:
        """Training processes on all machines."""
        return self.nnodes * self.n_gpus_per_node
