"""Settings for reward-model training: rows with labels in, a reward model out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.actor import FSDPConfig, ModelConfig, OptimConfig
from rmrl.config.schema.fields import (
    at_least,
    changeable,
    choice,
    count_or_all,
    not_negative,
    positive,
    share,
)


@dataclass(kw_only=True, slots=True)
class RewardDataConfig:
    train_files: Any = None
    """A parquet / jsonl / csv path, hf://owner/name/split, or a list with several."""
    val_files: Any = None
    """Held-out rows, named the same way. null takes the share `val_share` from the training
    prompts."""
    val_share: float = share(0.1)
    """Share that is held out, by prompts, where there are no `val_files`."""
    exclude_files: Any = None
    """Files with an evaluation set. Training rows whose prompt stands there are left out and
    counted."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Column, or path below one, where a value stands: {prompt: question, chosen: better}."""
    form: str | None = None
    """Layout: pairs, ranked, attributes, two_responses, steps, processbench, math_shepherd,
    prm800k, rlhflow or choice. null: the columns tell."""
    question: str | None = None
    """decision: what rows without a question of their own are asked, e.g. 'The answer is
    correct.'"""
    train_max_samples: int = count_or_all()
    """Keep at most this many training rows. -1: all."""
    val_max_samples: int = at_least(-1, least=-1)
    """Keep at most this many held-out rows. -1: all."""
    max_length: int = positive(2048)
    """Most tokens in a prompt with its response. A model with fewer positions lowers it."""
    overlong: str = choice("drop", among=("drop", "cut", "error"))
    """What happens to a row with a text beyond `max_length`: drop it, cut its prompt's start, or
    refuse to start. The report counts these rows."""
    train_batch_size: int = positive(64)
    """Rows (pairs, lists, ...) in an optimizer step."""


@dataclass(kw_only=True, slots=True)
class RewardLossConfig:
    """Settings that only some objectives read."""

    center: float = not_negative(0.0)
    """bradley_terry: coefficient of (chosen + rejected)^2, which keeps the scores around 0
    (arXiv:2312.09244)."""
    label_smoothing: float = share(0.0)
    """bradley_terry: share that is taken to be wrong, among the labels."""
    tie_strength: float = not_negative(0.0)
    """plackett_luce: how likely a pair ties (Davidson 1970). 0 leaves pairs with a tie out."""
    head: str = choice("point", among=("point", "variance", "quantiles"))
    """attributes: what the head has for each attribute: a value, a variance beside it, or the
    quantiles .5, .1 and .9."""
    decision: str = choice("cross_entropy", among=("cross_entropy", "brier", "rlcd", "outcome"))
    """decision: cross_entropy or brier of the stated probabilities, or a policy gradient whose
    reward is 1 for the right answer (outcome), less the probability stated (rlcd)."""
    draws: int = positive(8)
    """rlcd and outcome: answers that are drawn for a question in each step."""
    critic: dict[str, Any] = field(default_factory=dict)
    """critique: entries of the reward that writes critiques (kind critique, without its scorer):
    {path: Qwen/Qwen3-4B, rubric: ..., sampling: {max_tokens: 300}}."""
    label_mass: float = not_negative(0.1)
    """decision: coefficient of -log P(some answer), which keeps the answers likely among all
    tokens."""


@dataclass(kw_only=True, slots=True)
class RewardTrainerConfig:
    total_epochs: int = positive(1, may_change=True)
    """Passes over the training rows."""
    total_training_steps: int | None = positive(None, may_change=True)
    """Number of optimizer steps. null: by total_epochs."""
    max_tokens_per_gpu: int | None = positive(None, may_change=True)
    """Most padded tokens per micro-batch and process. Gradients add up over the micro-batches in a
    step. null: 16384, on CPU 4096."""
    grad_clip: float = positive(1.0)
    """Largest global gradient norm."""
    logger: list[str] = changeable(factory=lambda: ["console", "jsonl", "tensorboard"])
    """Destinations for metrics, besides metrics.jsonl, which is always written: console, jsonl,
    tensorboard, wandb, trackio, mlflow, swanlab, or package.module:factory."""
    project_name: str = changeable("rmrl")
    """The trackers' project."""
    experiment_name: str = changeable("reward")
    """The trackers' run."""
    n_gpus_per_node: int = count_or_all(may_change=True)
    """Training processes, one per GPU on CUDA. -1: all GPUs here, on CPU one process,
    which uses all cores."""
    device: str = choice("auto", among=("auto", "cuda", "cpu"), may_change=True)
    """auto, cuda or cpu."""
    seed: int = 1
    """Seed for the new head, the rows' order and the split."""
    save_freq: int = at_least(-1, least=-1, may_change=True)
    """Steps between checkpoints to resume from. -1: after each validation, and at the end."""
    test_freq: int = at_least(-1, least=-1, may_change=True)
    """Steps between validations on the held-out rows. -1: ten times in the run."""
    early_stop: int | None = positive(None, may_change=True)
    """Stop after this many validations without a better `best_by`. null: never."""
    best_by: str | None = choice(None, among=(None, "accuracy", "loss", "brier", "length_matched"))
    """Held-out figure that the best weights are chosen by. null: accuracy, for attributes
    and process loss, for decision brier."""
    resume_mode: str = choice("auto", among=("auto", "disable"), may_change=True)
    """auto (newest complete checkpoint, if any), disable (refuse a used folder)."""
    max_ckpt_to_keep: int = positive(2, may_change=True)
    """Number of checkpoints to keep."""
    threads_per_process: int | None = positive(None, may_change=True)
    """CPU threads per process. null: cores / processes."""
    stall_timeout_s: float = positive(3600.0, may_change=True)
    """Deadline for a step. A longer one ends the run with exit code 5."""
    log_level: str = choice("info", among=("debug", "info", "warning"), may_change=True)
    """Least level for messages on the console: debug, info or warning."""


@dataclass(kw_only=True, slots=True)
class GateConfig:
    """The saved model must score texts the same in every engine."""

    texts: int = positive(64, may_change=True)
    """Held-out texts that are scored."""
    engines: list[str] = changeable(factory=lambda: ["hf", "vllm"])
    """Engines that are compared with transformers. One that is not installed is reported and left
    out."""
    tolerance: float | None = positive(None, may_change=True)
    """Largest difference between two scores. null: 1e-5 in float32 (decision: 5e-5), else what
    half precision rounds to."""


@dataclass(kw_only=True, slots=True)
class RewardTrainingConfig:
    data: RewardDataConfig = field(default_factory=RewardDataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: str = "bradley_terry"
    """Name in the table OBJECTIVES, or package.module:Class."""
    loss: RewardLossConfig = field(default_factory=RewardLossConfig)
    seeds: int = positive(1)
    """Models to train, each from a seed of its own, one after another. Several make an ensemble of
    LoRA adapters on one base, which one engine serves, or one model (`merge`)."""
    merge: str = choice("ensemble", among=("ensemble", "average"))
    """What becomes of several seeds: an ensemble, or one model whose weights are their average
    (WARM, arXiv:2401.12187)."""
    optim: OptimConfig = field(default_factory=lambda: OptimConfig(lr=1e-5))
    fsdp_config: FSDPConfig = field(default_factory=FSDPConfig)
    trainer: RewardTrainerConfig = field(default_factory=RewardTrainerConfig)
    gate: GateConfig = changeable(factory=GateConfig)
    out: str | None = changeable(None)
    """Folder for the run: the model, its reward.yaml, the report, checkpoints and metrics."""
