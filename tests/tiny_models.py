"""The two checkpoints of the session fixtures in conftest.py; their shape stands in
tests/engine_models.py."""

from __future__ import annotations

from pathlib import Path

from tests.engine_models import write_llama, write_llama_scorer


def save_tiny_llama(folder: Path) -> Path:
    """A random causal language model with a tokenizer that has a chat template."""
    return write_llama(folder)


def save_tiny_reward_llama(folder: Path) -> Path:
    """The same architecture with a one-label classification head, and the same tokenizer."""
    return write_llama_scorer(folder)
