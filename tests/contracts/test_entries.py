"""Every entry of every kind and transform, with values of every other type than its own.

A configuration file may hold anything. Each value of another type is refused by a sentence that
names its entry, and no value ends in a traceback.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rmrl.errors import ConfigError
from rmrl.rewards.entries.section import NAMES, SHARED_KEYS, check_names
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.transforms import TRANSFORMS, parse_transforms
from tests.rewards.parts import problems_of

TEXTS: Sequence[Any] = ("x", "")
NUMBERS: Sequence[Any] = (5, -1, 10**30, 0.5)
LISTS: Sequence[Any] = ([], [1], ["a"], [[1]], [None], [{"a": 1}])
MAPPINGS: Sequence[Any] = ({}, {"a": 1}, {1: 2}, {True: 1}, {"a": {"b": [1]}})
ANYTHING: Sequence[Any] = (*TEXTS, *NUMBERS, *LISTS, *MAPPINGS, True, math.nan, math.inf, None)
OTHERS: Mapping[type, Sequence[Any]] = {
    bool: (*TEXTS, *NUMBERS, *LISTS, *MAPPINGS),
    int: (*TEXTS, *LISTS, *MAPPINGS, True, 0.5, math.nan),
    float: (*TEXTS, *LISTS, *MAPPINGS, True, math.nan, math.inf),
    str: (*NUMBERS, *LISTS, *MAPPINGS, True),
    dict: (*TEXTS, *NUMBERS, [1], True, None),
    tuple: (*TEXTS, *NUMBERS, *MAPPINGS, True, None),
}
"""The type that a default has -> values that the entry cannot have."""


def default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@pytest.mark.parametrize("kind", list(REWARD_KINDS))
def test_a_kind_refuses_what_its_entries_cannot_be(kind: str) -> None:
    made = REWARD_KINDS[kind]
    for field in dataclasses.fields(made.Options):
        for value in ANYTHING:
            for problem in problems_of(made, {field.name: value}, "reward.specs.x"):
                assert problem.startswith("reward.specs.x"), problem
        for value in OTHERS.get(type(default_of(field)), ()):
            if str(field.type) != "Any":
                refused = problems_of(made, {field.name: value}, "reward.specs.x")
                assert any(f"x.{field.name}" in problem for problem in refused), (field.name, value)


@pytest.mark.parametrize("kind", list(TRANSFORMS))
def test_a_transform_refuses_what_its_entries_cannot_be(kind: str) -> None:
    for field in dataclasses.fields(TRANSFORMS[kind]):  # type: ignore[arg-type]
        for value in OTHERS.get(type(default_of(field)), ()):
            with pytest.raises(ConfigError, match=rf"transform\.{field.name}="):
                parse_transforms({"kind": kind, field.name: value}, "transform")


@pytest.mark.parametrize("name", list(NAMES))
def test_a_shared_entry_that_is_a_name_refuses_anything_else(name: str) -> None:
    for value in (*LISTS, *MAPPINGS, 0.5, True, math.nan):
        with pytest.raises(ConfigError, match=rf"reward\.specs\.x\.{name}="):
            check_names({name: value, "of_the_kind": value}, "reward.specs.x")
    check_names(dict.fromkeys(SHARED_KEYS), "reward.specs.x")
    # A number picks rm_prompt_<number>.
    check_names({"rm_prompt": 0, name: "x"}, "reward.specs.x")
