"""Pairs, items and settings for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.config.schema import (
    ActorConfig,
    CriticConfig,
    FSDPConfig,
    ModelConfig,
    OptimConfig,
    RewardLossConfig,
)
from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import Item
from rmrl.reward_training.reward_engine import RewardSettings

VOCABULARY = 512


def example(better: str = "good", worse: str = "bad", **entries: Any) -> Example:
    """A pair whose first response is the better one."""
    entries = {"place": "pairs.jsonl row 0", "prompt": "Hi", "ranks": (0, 1), **entries}
    return Example(responses=(better, worse), **entries)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A jsonl file with rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def random_items(count: int, *, seed: int, margins: bool = True) -> list[Item]:
    """Pairs with 4 to 20 random tokens, which share their start."""
    rng = np.random.default_rng(seed)
    items: list[Item] = []
    for number in range(count):
        prompt = rng.integers(3, VOCABULARY, int(rng.integers(2, 9)))
        rows = [
            np.concatenate([prompt, rng.integers(3, VOCABULARY, int(rng.integers(2, 12)))])
            for _ in range(2)
        ]
        reads = [np.arange(len(row) - len(prompt)) == len(row) - len(prompt) - 1 for row in rows]
        margin = float(rng.random()) if margins else 0.0
        items.append(
            Item(
                number=number,
                tokens=tuple(row.astype(np.int32) for row in rows),
                shared=len(prompt),
                reads=tuple(reads),
                targets=((0.0, margin), (1.0, margin)),
            )
        )
    return items


def reward_settings(
    model: Path, *, loss: RewardLossConfig | None = None, tokens: int = 400, **model_entries: Any
) -> RewardSettings:
    """float32 training, one output."""
    trained: dict[str, Any] = {
        "strategy": "fsdp2",
        "fsdp_config": FSDPConfig(param_dtype=None),
        # An epsilon above the rounding of gradients.
        "optim": OptimConfig(lr=2e-3, eps=1e-5, lr_scheduler_type="cosine", lr_warmup_steps=2),
        "ppo_max_token_len_per_gpu": tokens,
        "ppo_epochs": 1,
    }
    return RewardSettings(
        model=ModelConfig(path=str(model), **model_entries),
        actor=ActorConfig(**trained),
        critic=CriticConfig(**trained),
        role="critic",
        total_steps=20,
        labels=("score",),
        own_tokens=True,
        objective="bradley_terry",
        loss=loss or RewardLossConfig(),
    )
