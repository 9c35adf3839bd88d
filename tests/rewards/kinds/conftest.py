"""A pool of workers, and a rule with every way to misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmrl.rewards.kinds.rule.pool import RulePool
from tests.rewards.kinds.rule.rule_parts import EVERY_WAY


@pytest.fixture(scope="module")
def pool() -> Iterator[RulePool]:
    with RulePool(2) as shared:
        yield shared


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("functions") / "ways.py"
    path.write_text(EVERY_WAY, encoding="utf-8")
    return path
