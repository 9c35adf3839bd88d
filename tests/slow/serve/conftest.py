"""The fixtures of tests/serve."""

from tests.serve.conftest import bench, served, tokenizer

__all__ = ["bench", "served", "tokenizer"]
