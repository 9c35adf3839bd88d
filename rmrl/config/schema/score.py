"""Root of offline scoring: rows with responses, the `reward` section of training, one output
file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.fields import changeable, choice, not_negative, positive
from rmrl.config.schema.reward import ClusterConfig, RewardConfig


@dataclass(kw_only=True, slots=True)
class ScoreDataConfig:
    files: Any = changeable(None)
    """Parquet, jsonl or csv file, hf://owner/name/split, or a list of them."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Columns of the values of a row, e.g. {prompt: question, reference: gold, response: answer,
    id: uid}, or paths below one (meta.gold). Names: prompt, reference, id, data_source, ability,
    extra_info, rm_prompt, rm_prompt_<name>,
    response (one, or a list of them), response_tokens, finish_reason, opens_thinking."""
    prompt_key: str = "prompt"
    """Column of the messages; older than `columns`."""
    response_key: str = "response"
    """Column with one response, or a list of them (`responses` is read as well); older than
    `columns`."""
    reward_fn_key: str = "data_source"
    """Column that names the row's source; older than `columns`."""
    group_key: Any = None
    """Column, or list of columns, that identify the group of responses to compare; null: `step` and
    `prompt_id` where rows have them, else the prompt."""
    max_rows: int = -1
    """Read only the first rows; -1: all."""
    sample: int | None = positive(None)
    """Read only this many rows, drawn at random from all (or the first `max_rows`); null: all. The
    same rows each time, in the order of the files."""
    seed: int = 1
    """Seed of `sample`."""
    on_bad_row: str = choice("fail", among=("fail", "quarantine"))
    """Reaction to a row that cannot be read (a line that is not JSON, a column that is missing or
    of a wrong type): fail (before anything is scored) or quarantine (the row goes to
    <out>.quarantine.jsonl with the reason, all others are scored)."""
    batch_size: int = positive(256)
    """Responses scored together, also by batch-wise transforms. A killed job loses a batch and some
    seconds."""
    tokenizer: str | None = None
    """Tokenizer of the policy, to count response tokens without a column response_tokens (needed by
    rewards that depend on length)."""


@dataclass(kw_only=True, slots=True)
class ScoreEngineConfig:
    engine: str = choice("local", among=("local", "ray_data"), may_change=True)
    """local: this process, with the engines of the reward section; ray_data: actors of Ray Data on
    all nodes of a cluster (`ray_kwargs.ray_init.address`, or RAY_ADDRESS), each with rule workers
    and engines of its own."""
    actors: int | None = positive(None, may_change=True)
    """Number of actors of ray_data, each with `reward.rule_workers` (there 1 by default) CPUs, and
    a GPU where an engine needs one; null: as many as the CPUs allow."""


@dataclass(kw_only=True, slots=True)
class ScoreTrainerConfig:
    """Keys of section `trainer` that scoring shares with training."""

    device: str = choice("auto", among=("auto", "cuda", "cpu"), may_change=True)
    """auto, cuda or cpu."""
    nnodes: int = changeable(1)
    """Machines."""
    n_gpus_per_node: int = changeable(1)
    """GPUs per machine (CUDA)."""
    seed: int = 1
    """Seed of all random draws."""
    log_level: str = choice("info", among=("debug", "info", "warning"), may_change=True)
    """Least level of the messages on the console: debug, info or warning. The file beside `out`
    holds info and above, with debug that too."""
    memory_budget_gb: float | None = changeable(None)
    """Memory that the plan may use per device (CPU: of the machine); null: the memory free at
    start."""
    resource_pools: dict[str, Any] = changeable(factory=dict)
    """<name>: {nnodes, n_gpus_per_node}: separate devices for reward.engine.pool."""
    trust_remote_code: bool = changeable(False)
    """Run code that comes with a reward model's checkpoint."""


@dataclass(kw_only=True, slots=True)
class ScoreConfig:
    data: ScoreDataConfig = field(default_factory=ScoreDataConfig)
    out: str | None = changeable(None)
    """Parquet, jsonl or csv file to write: the rows with their scores."""
    escape_formulas: bool = changeable(False)
    """Write an apostrophe before text cells of a csv file that a spreadsheet would take for a
    formula: those that begin with = + - @, a tab or a line break."""
    overwrite: bool = changeable(False)
    """Replace `out` if it exists, and discard unfinished rows of another job."""
    shard: str | None = None
    """i/n: score the i-th (1 to n) of n parts of the rows, into <name>-<i>-of-<n>.<suffix> for
    `out`; null: all rows."""
    score: ScoreEngineConfig = field(default_factory=ScoreEngineConfig)
    select: str | None = choice(None, among=(None, "best"), may_change=True)
    """best: write <name>.best.jsonl beside `out` too, with the best response to every prompt
    (`data.group_key`)."""
    export: str | None = choice(None, among=(None, "dpo", "sft"), may_change=True)
    """dpo: write <name>.dpo.jsonl beside `out` too, the best and the worst response to every prompt
    as a pair; sft: <name>.sft.jsonl, the responses with a reward as examples (with select=best the
    best ones)."""
    export_margin: float = not_negative(0.0, may_change=True)
    """Least difference of the two rewards of a pair; equal rewards never make one."""
    columns: list[str] = field(default_factory=list)
    """Further columns per reward: rendered (input of a judge), raw (its output), read (what it read
    of the response, where that is another text), steps (the scores of a process reward's
    steps)."""
    over_budget: str = choice("warn", among=("warn", "fail"), may_change=True)
    """Reaction to more missing verdicts in the whole file than `reward.max_missing` allows: warn
    (at the end, exit code 0) or fail (exit code 3; `out` is still written). A reward without any
    verdict fails with both."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    reward_model: dict[str, Any] = field(default_factory=dict)
    """Older names; translated by rmrl.config.compat."""
    custom_reward_function: dict[str, Any] = field(default_factory=dict)
    """Older names; {path, name, reward_kwargs} of a rule."""
    trainer: ScoreTrainerConfig = field(default_factory=ScoreTrainerConfig)
    ray_kwargs: ClusterConfig = changeable(factory=ClusterConfig)
