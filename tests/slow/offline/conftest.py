"""The fixtures of tests/offline."""

from tests.offline.conftest import bench, tokenizer

__all__ = ["bench", "tokenizer"]
