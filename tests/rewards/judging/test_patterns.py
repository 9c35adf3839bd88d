"""The table of patterns: each reads its example and leaves its counter-example."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.rewards.judging.patterns import Pattern, table
from rmrl.rewards.judging.reader import read_choice, read_number
from rmrl.rewards.judging.reading import Reading

GUARDS: dict[str, tuple[Any, Any]] = {
    "condition": (None, "A"),
    "opinion": (None, "A"),
    "leads on": (None, 7),
    "not a score": (None, 7),
    "hypothetical": (None, "A"),
    "goes on": (None, "tie"),
    "qualified": ("B", "A"),  # the stronger statement is left
    "aspect": (None, 7),
    "concludes": ("A", None),  # a contradiction without it
    "revision": ("A", "A"),
}
"""What is read in each guard's example and in its counter-example."""
PATTERNS = [pattern for pattern in table().values() if pattern.name not in GUARDS]


def readings(text: str, kinds: Any) -> list[Reading[Any]]:
    read = {
        "choice": lambda: read_choice(text, ["A", "B", "tie"]),
        "number": lambda: read_number(text, 0, 10),
    }
    return [read[kind]() for kind in kinds]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_pattern_reads_its_example_and_leaves_its_counter_example(pattern: Pattern):
    read = [each for each in readings(pattern.example, pattern.of) if each.verdict is not None]
    assert [each.pattern for each in read] == [pattern.name]
    expected = "A" if pattern.prefers in ("first", "other") else "tie"
    assert read[0].verdict == (7 if pattern.of == ["number"] else expected)
    assert [each.verdict for each in readings(pattern.counter, pattern.of)] == [None] * len(
        pattern.of
    )


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_voids_its_example_and_leaves_its_counter_example(name: str):
    guard = table()[name]
    for text, verdict in zip((guard.example, guard.counter), GUARDS[name], strict=True):
        found = [each.verdict for each in readings(text, guard.of)]
        assert set(found) <= {verdict, None}
        assert verdict in found


def test_the_table_stays_small():
    assert len(table()) <= 40
