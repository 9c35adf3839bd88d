from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from rmrl.data.json_text import StructuredReference, first_text, parsed, reference_value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"target": ["Paris", "Rome"]}, "Paris"),
        ([None, [], {"a": None, "b": [4]}], "4"),
        (["", "b"], "b"),
        ({}, ""),
        ("plain", "plain"),
        (None, ""),
    ],
)
def test_the_first_text(value: Any, text: str):
    assert first_text(value) == text


def test_a_structured_reference_is_its_json_text_and_keeps_its_value():
    reference = StructuredReference({"a": ["é", 1]})
    for same in (reference, copy.deepcopy(reference), pickle.loads(pickle.dumps(reference))):
        assert same == '{"a": ["é", 1]}'
        assert reference_value(same) == {"a": ["é", 1]}
    assert [reference_value("x"), reference_value(None)] == ["x", None]


def test_what_is_no_json_is_a_text():
    assert [parsed("[1]"), parsed("1."), parsed("[" * 100_000)] == [[1], "1.", "[" * 100_000]
