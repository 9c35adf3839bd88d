"""JSON objects in free text."""

from __future__ import annotations

import re

from rmrl.rewards.judging.json_fields import entries_beside, outermost_field, outermost_objects


def test_objects_are_found_between_words_and_broken_ones_are_passed_over():
    text = 'First {"a": 1}, then {broken, {"b": {"c": 2}} and the end.'
    assert list(outermost_objects(text)) == [{"a": 1}, {"b": {"c": 2}}]
    assert list(outermost_objects("no brace")) == []
    # Too deep to be read, behind a long text.
    assert list(outermost_objects("x" * 2_000 + '{"a":' * 20_000)) == []


def test_an_outer_field_precedes_an_inner_one():
    names = re.compile("score")
    assert outermost_field({"parts": {"score": 1}, "score": 2}, names) == 2
    assert outermost_field({"parts": [{"other": 0}, {"score": 3}]}, names) == 3
    assert outermost_field({"score": None, "parts": {"score": 4}}, names) == 4
    assert outermost_field({"other": 1}, names) is None


def test_entries_beside_a_field_of_one_object():
    assert entries_beside('{"score": 7, "why": "late"}', "score") == {"why": "late"}
    assert entries_beside('{"why": "late"}', "score") == {}
    assert entries_beside('[{"score": 7}]', "score") == {}
    assert entries_beside('Score: {"score": 7}', "score") == {}
    assert entries_beside("[" * 100_000, "score") == {}
