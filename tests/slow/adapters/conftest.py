"""The fixtures of tests/adapters."""

from tests.adapters.conftest import config

__all__ = ["config"]
