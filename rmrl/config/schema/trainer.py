"""Section `trainer`: how long, where, what is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True, slots=True)
class TrainerConfig:
    total_epochs: int = 30
    """Passes over the training rows."""
    total_training_steps: int | None = None
    """Steps in all; null: by total_epochs."""
    project_name: str = "rmrl"
    """Folder above the run's, and the trackers' project."""
    experiment_name: str = "default"
    """The run's folder, and the trackers' run."""
    default_local_dir: str | None = None
    """Output folder; null: runs/<project_name>/<experiment_name>."""
    logger: list[str] = field(default_factory=lambda: ["console", "jsonl", "tensorboard"])
    """Where metrics go, besides metrics.jsonl, which is always written: console, jsonl,
    tensorboard, wandb, trackio, mlflow, swanlab, or package.module:factory."""
    nnodes: int = 1
    """Machines."""
    n_gpus_per_node: int = -1
    """Training processes per machine, one per GPU (on CPU: as many processes). -1: all GPUs of this
    machine, on CPU one process."""
    device: str = "auto"
    """auto, cuda or cpu."""
    seed: int = 1
    """Seed of everything that draws."""
    save_freq: int | None = None
    """Checkpoint every so many steps; null: at the first step that ends half an hour after the last
    one, and the newest two stay; -1: only at the end. Every run saves when it ends, by an error
    too."""
    test_freq: int = -1
    """Validate every so many steps; -1: never."""
    val_before_train: bool = True
    """Validate before the first step (if data.val_files is given)."""
    val_only: bool = False
    """Validate and stop."""
    resume_mode: str = "auto"
    """auto (newest complete checkpoint, if any), disable (refuse a used folder), resume_path."""
    resume_from_path: str | None = None
    """Checkpoint folder for resume_mode=resume_path."""
    max_actor_ckpt_to_keep: int | None = None
    """Older checkpoints are removed; null: all are kept (with save_freq=null two)."""
    log_val_generations: int = 0
    """Validation samples printed."""
    log_sample_freq: int = 10
    """Show one scored sample (console, TensorBoard text) every so many steps; -1: never."""
    rollout_samples_per_step: int = -1
    """Scored samples written per step; -1: all."""
    threads_per_process: int | None = None
    """CPU threads of each training process; null: cores / processes."""
    memory_budget_gb: float | None = None
    """Memory the plan may use per device (CPU: of the machine); null: what is free at start."""
    resource_pools: dict[str, Any] = field(default_factory=dict)
    """<name>: {nnodes, n_gpus_per_node}: devices apart from the policy's, for rollout.pool,
    critic.pool and reward.engine.pool; on CPU processes of their own."""
    critic_warmup: int = 0
    """Steps in which only the critic learns."""
    max_staleness: int = 0
    """Updates that the policy may be ahead of the one that sampled a batch. 0: on-policy; 1: the
    next batch is sampled and scored while this one trains. More than 0 needs rollout.pool."""
    stall_timeout_s: float = 3600.0
    """A stage that takes longer ends the run with exit code 5."""
