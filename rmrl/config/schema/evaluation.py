"""Root for evaluation: a benchmark, and the same `reward` section as in training, or recorded
judgements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.fields import changeable, choice, count_or_all, positive, share
from rmrl.config.schema.reward import ClusterConfig, RewardConfig
from rmrl.config.schema.score import ScoreTrainerConfig


@dataclass(kw_only=True, slots=True)
class EvalDataConfig:
    files: Any = changeable(None)
    """Benchmark files as they are published: parquet, jsonl, json or csv, or
    hf://owner/name/split."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Columns that hold a row's values, or paths below a column, by the format's names: {prompt:
    question, chosen: outputs.0}. `reference` names the column for ground_truth."""
    max_rows: int = count_or_all()
    """Read only the first rows. -1: all."""
    sample: int | None = positive(None)
    """Evaluate only this many items, drawn at random by `eval.seed`. null: all."""
    batch_size: int = positive(256)
    """Responses scored together."""
    tokenizer: str | None = None
    """The policy's tokenizer, to count response tokens (rewards that look at length need it)."""


@dataclass(kw_only=True, slots=True)
class BenchmarkConfig:
    format: str | None = None
    """Layout of the files: pairs, best_of_n, absolute, or a benchmark's name."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Older than `data.columns`, and the same."""
    recorded: Any = changeable(None)
    """Recorded scores or judge outputs instead of rewards: a file or a list of them."""
    recorded_columns: dict[str, Any] = field(default_factory=dict)
    """Columns in the recorded rows for id, judge, scores, verdict, verdict_swapped, text,
    text_swapped and first_wrong. judge may be a list of columns."""
    swapped_names: str | None = choice(None, among=(None, "shown", "original"))
    """Numbering in verdict_swapped: the responses as they were shown, or in their original order.
    null: as in the benchmark's own outputs, else as shown."""
    choices: list[str] = field(default_factory=lambda: ["A", "B", "tie"])
    """Choices in recorded texts: the first response, the second, and a tie."""
    scale: list[float] = field(default_factory=list)
    """[low, high]: recorded texts give a number on this scale instead of a choice."""
    parser: str = ""
    """Regular expression that reads recorded texts, with the verdict in (?P<verdict>...)."""
    ties: str = choice("benchmark", among=("benchmark", "share", "wrong"))
    """Worth of a tie for the first place. benchmark: as the benchmark counts ties. share: the share
    of good responses in the tie. wrong: nothing."""
    step_threshold: float = share(0.5)
    """A step with a score below this is wrong, where a process reward is evaluated on steps."""
    bins: int = positive(10)
    """Bins in the reliability curve."""
    confidence: float = share(0.95)
    """Coverage of the intervals."""
    gold: str | None = None
    """A judge whose scores are taken for the truth in the pressure curve. null: the labels."""
    seed: int = 1
    """Seed for `data.sample`, the random control, the bootstrap and the cross-validation folds."""


@dataclass(kw_only=True, slots=True)
class EvalConfig:
    data: EvalDataConfig = field(default_factory=EvalDataConfig)
    eval: BenchmarkConfig = field(default_factory=BenchmarkConfig)
    out: str | None = changeable(None)
    """Folder for the report, the outcomes and the scores."""
    overwrite: bool = changeable(False)
    """Replace what another evaluation left in `out`."""
    over_budget: str = choice("warn", among=("warn", "fail"), may_change=True)
    """When more verdicts are missing than `reward.max_missing` allows: warn or fail (exit code
    3)."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    reward_model: dict[str, Any] = field(default_factory=dict)
    """Older names. `rmrl.config.compat` translates them."""
    custom_reward_function: dict[str, Any] = field(default_factory=dict)
    """Older names: {path, name, reward_kwargs} of a rule."""
    trainer: ScoreTrainerConfig = field(default_factory=ScoreTrainerConfig)
    ray_kwargs: ClusterConfig = changeable(factory=ClusterConfig)
