"""Every test below this folder is slow: it starts an engine, Ray or several processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forks.servers import FRESH, environment_of, forks_environment

FOLDER = Path(__file__).resolve().parent
SECONDS: dict[str, float] = json.loads((FOLDER / "seconds.json").read_text(encoding="utf-8"))
"""How long each file takes, written by scripts/slow_seconds.py."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests, and put the files that take longest first: begun last, one of them would run
    beside nothing."""
    first: list[tuple[float, pytest.Item]] = []
    others: list[pytest.Item] = []
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.slow)
            first.append((SECONDS.get(item.path.relative_to(FOLDER).as_posix(), 0.0), item))
        else:
            others.append(item)
    first.sort(key=lambda timed: -timed[0])
    items[:] = [item for _, item in first] + others


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let the programs that a test starts be forks, those of its fixtures too."""
    if item.path.is_relative_to(FOLDER) and may_fork(item):
        with environment_of(forks_environment()):
            return (yield)
    return (yield)


def may_fork(item: pytest.Item) -> bool:
    """Whether nothing in the test depends on who started a program, and how."""
    if FRESH in os.environ or item.get_closest_marker("fresh"):
        return False
    alone = item.get_closest_marker("alone")
    return alone is None or alone.kwargs.get("forks", False)
