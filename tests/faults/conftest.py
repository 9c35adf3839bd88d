"""Fixtures of the fault tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rewards import parts


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One token per character."""
    return parts.chat_tokenizer(tmp_path_factory.mktemp("tokenizer"))
