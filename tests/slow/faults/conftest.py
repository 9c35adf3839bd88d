"""The fixtures of tests/faults."""

from tests.faults.conftest import tokenizer

__all__ = ["tokenizer"]
