"""The policy that engines train in this process, and the end of their group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmrl.backends.process_group import leave_group
from tests.backends.policies import write_policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def _leaves_group() -> Iterator[None]:
    """Leave the group of one process behind each test."""
    yield
    leave_group()
