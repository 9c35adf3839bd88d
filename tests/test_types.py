"""The examples in the docstrings of the types run."""

from __future__ import annotations

import doctest

from rmrl import types


def test_the_examples_run() -> None:
    result = doctest.testmod(types)
    assert result.attempted >= 16
    assert result.failed == 0
