"""Section `data`: the rows, and their conversion to prompts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmrl.config.schema.fields import at_least, changeable, choice, count_or_all, positive


@dataclass(kw_only=True, slots=True)
class DataConfig:
    train_files: Any = None
    """One parquet / jsonl / csv path, a pattern such as shards/*.parquet, hf://owner/name/split, or
    a list of them."""
    val_files: Any = changeable(None)
    """Same, for validation. null: no validation."""
    train_max_samples: int = count_or_all()
    """Keep at most this many training rows. -1: all."""
    val_max_samples: int = at_least(-1, least=-1, may_change=True)
    """Keep at most this many validation rows. -1: all."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Columns that hold a row's values, e.g. {prompt: question, reference: gold, response: answer,
    id: uid}, or paths below a column (meta.gold). Names: prompt, reference, id, data_source,
    ability, extra_info, rm_prompt, rm_prompt_<name>. Names that belong to a response are for `rmrl
    score`."""
    prompt_key: str = "prompt"
    """Column with the messages. Older than `columns`."""
    reward_fn_key: str = "data_source"
    """Column that names the row's source. Older than `columns`."""
    max_prompt_length: int = positive(512)
    """In tokens. Longer prompts are dropped (filter_overlong_prompts), cut (truncation) or refused
    (error)."""
    max_response_length: int = positive(512)
    """Largest number of generated tokens."""
    train_batch_size: int = positive(1024)
    """Prompts per training step."""
    gen_batch_size: int | None = None
    """Prompts per round of dynamic sampling (algorithm.filter_groups). Prompts with contrast beyond
    train_batch_size are left out. null: the number still missing."""
    val_batch_size: int | None = positive(None, may_change=True)
    """Prompts per validation batch. null: all at once."""
    shuffle: bool = True
    """Reshuffle the training rows each epoch."""
    seed: int | None = None
    """Seed for the shuffle. null: trainer.seed."""
    filter_overlong_prompts: bool = False
    """Drop prompts longer than max_prompt_length. The count is printed."""
    truncation: str = choice("error", among=("error", "left", "right", "middle"))
    """Treatment for an overlong prompt: error, left (keep the end), right (keep the start), middle
    (keep both ends)."""
    apply_chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Passed to tokenizer.apply_chat_template, e.g. {enable_thinking: false}."""
    tokenizer: str | None = None
    """Tokenizer path. null: the policy's tokenizer."""
    trust_remote_code: bool = False
    """Allow the tokenizer to run code from its checkpoint."""
