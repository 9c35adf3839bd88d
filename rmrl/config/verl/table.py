"""All rows; the first that matches a key counts."""

from __future__ import annotations

import itertools

from rmrl.config.verl.key_rules import KeyFate
from rmrl.config.verl.rows_run import ALGORITHM, DATA, REWARD, ROLLOUT, TOP, TRAINER
from rmrl.config.verl.rows_training import (
    ACTOR_AND_CRITIC,
    FSDP,
    MEGATRON,
    MODEL,
    OPTIMIZER,
    REFERENCE,
)

SECTIONS: dict[str, tuple[KeyFate, ...]] = {
    "Policy and critic": ACTOR_AND_CRITIC,
    "Optimizer": OPTIMIZER,
    "FSDP": FSDP,
    "Megatron": MEGATRON,
    "Reference and log-probabilities": REFERENCE,
    "Model": MODEL,
    "Rollout": ROLLOUT,
    "Algorithm": ALGORITHM,
    "Data": DATA,
    "Rewards": REWARD,
    "Trainer": TRAINER,
    "Other sections": TOP,
}
"""Heading -> rows, in the order of the search."""
TABLE: tuple[KeyFate, ...] = tuple(itertools.chain.from_iterable(SECTIONS.values()))
