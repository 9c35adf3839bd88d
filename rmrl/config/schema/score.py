"""Root for offline scoring: rows with responses, training's `reward` section, one output file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.fields import (
    changeable,
    choice,
    count_or_all,
    not_negative,
    positive,
)
from rmrl.config.schema.reward import ClusterConfig, RewardConfig


@dataclass(kw_only=True, slots=True)
class ScoreDataConfig:
    files: Any = changeable(None)
    """Parquet, jsonl or csv file, hf://owner/name/split, or a list of them."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Columns that hold a row's values, e.g. {prompt: question, reference: gold, response: answer,
    id: uid}, or paths below a column (meta.gold). Names: prompt, reference, id, data_source,
    ability, extra_info, rm_prompt, rm_prompt_<name>, response (one, or a list), response_tokens,
    finish_reason, opens_thinking."""
    prompt_key: str = "prompt"
    """Column with the messages. Older than `columns`."""
    response_key: str = "response"
    """Column with one response, or a list of responses (`responses` is read as well). Older than
    `columns`."""
    reward_fn_key: str = "data_source"
    """Column that names the row's source. Older than `columns`."""
    group_key: Any = None
    """Column, or list of columns, that identify the group within which responses are compared.
    null: `step` and `prompt_id` where rows have them, else the prompt."""
    max_rows: int = count_or_all()
    """Read only the first rows. -1: all."""
    sample: int | None = positive(None)
    """Read only this many rows, drawn at random from all rows (or from the first `max_rows`). null:
    all rows. The draw gives the same rows each time, in file order."""
    seed: int = 1
    """Seed for `sample`."""
    on_bad_row: str = choice("fail", among=("fail", "quarantine"))
    """Reaction to an unreadable row (a line that is not JSON, a missing column, a wrong type): fail
    (before anything is scored) or quarantine (the row goes to <out>.quarantine.jsonl with the
    reason, all other rows are scored)."""
    batch_size: int = positive(256)
    """Responses scored together, also by batch-wise transforms. A killed job loses a batch and some
    seconds."""
    tokenizer: str | None = None
    """The policy's tokenizer, to count response tokens where the rows have no column
    response_tokens. Rewards that depend on length need the count."""


@dataclass(kw_only=True, slots=True)
class ScoreEngineConfig:
    engine: str = choice("local", among=("local", "ray_data"), may_change=True)
    """local: this process, with the reward section's engines. ray_data: Ray Data actors on all
    nodes in a cluster (`ray_kwargs.ray_init.address`, or RAY_ADDRESS), each with its own rule
    workers and engines."""
    actors: int | None = positive(None, may_change=True)
    """Number of ray_data actors, each with `reward.rule_workers` (there 1 by default) CPUs, and a
    GPU where an engine needs one. null: as many as the CPUs allow."""


@dataclass(kw_only=True, slots=True)
class ScoreTrainerConfig:
    """Keys in section `trainer` that scoring shares with training."""

    device: str = choice("auto", among=("auto", "cuda", "cpu"), may_change=True)
    """auto, cuda or cpu."""
    nnodes: int = positive(1, may_change=True)
    """Machines."""
    n_gpus_per_node: int = positive(1, may_change=True)
    """GPUs per machine (CUDA)."""
    seed: int = 1
    """Seed for all random draws."""
    log_level: str = choice("info", among=("debug", "info", "warning"), may_change=True)
    """Least message level on the console: debug, info or warning. The file beside `out` holds info
    and above, with debug that too."""
    memory_budget_gb: float | None = positive(None, may_change=True)
    """Memory that the plan may use per device (CPU: of the machine). null: the memory free at
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
    """Write an apostrophe before text cells in a csv file that a spreadsheet would take for a
    formula: cells that begin with = + - @, a tab or a line break."""
    overwrite: bool = changeable(False)
    """Replace `out` if it exists, and discard unfinished rows of another job."""
    shard: str | None = None
    """i/n: score the i-th of n parts (1 to n) into <name>-<i>-of-<n>.<suffix> instead of `out`.
    null: all rows."""
    score: ScoreEngineConfig = field(default_factory=ScoreEngineConfig)
    select: str | None = choice(None, among=(None, "best"), may_change=True)
    """best: write <name>.best.jsonl beside `out` too, with the best response to every prompt
    (`data.group_key`)."""
    export: str | None = choice(None, among=(None, "dpo", "sft"), may_change=True)
    """dpo: also write <name>.dpo.jsonl beside `out`, with the best and the worst response to every
    prompt as a pair. sft: also write <name>.sft.jsonl, with the responses that have a reward as
    examples (with select=best the best ones)."""
    export_margin: float = not_negative(0.0, may_change=True)
    """Least difference between the two rewards in a pair. Equal rewards never make a pair."""
    columns: list[str] = field(default_factory=list)
    """Further columns per reward: rendered (a judge's input), raw (a judge's output), read (the
    text that the reward read, where it is not the response), steps (a process reward's step
    scores), turns (the score of each assistant turn, of a reward with `per: turn`)."""
    over_budget: str = choice("warn", among=("warn", "fail"), may_change=True)
    """Reaction to more missing verdicts in the whole file than `reward.max_missing` allows: warn
    (at the end, exit code 0) or fail (exit code 3, with `out` still written). A reward without any
    verdict fails with both."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    reward_model: dict[str, Any] = field(default_factory=dict)
    """Older names. `rmrl.config.compat` translates them."""
    custom_reward_function: dict[str, Any] = field(default_factory=dict)
    """Older names: {path, name, reward_kwargs} of a rule."""
    trainer: ScoreTrainerConfig = field(default_factory=ScoreTrainerConfig)
    ray_kwargs: ClusterConfig = changeable(factory=ClusterConfig)
