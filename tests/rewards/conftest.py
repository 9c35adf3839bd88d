"""Fixtures of the reward layer's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.rewards import parts


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return parts.chat_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def engine_calls() -> Iterator[list[tuple[str, list[Any]]]]:
    parts.calls.clear()
    yield parts.calls
    parts.calls.clear()
