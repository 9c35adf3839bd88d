"""The fixtures of tests/rewards."""

from tests.rewards.conftest import engine_calls, tokenizer

__all__ = ["engine_calls", "tokenizer"]
