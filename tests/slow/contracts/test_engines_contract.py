"""The same 64 texts through vLLM and transformers give the same numbers, however they are asked.

Tolerances, float32 throughout: 1e-4 on raw logits and log-probabilities, 1e-5 on vectors of
length 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contracts.test_engines_contract import (
    CASES,
    WAYS,
    asked,
    largest_difference,
    model,
    reference,
)
from tests.engine_process import run_in_engine_process

__all__ = ["model", "reference"]


def asked_all(
    name: str, jobs: list[tuple[str, tuple[str, str, str]]]
) -> list[dict[str, list[list[float]]]]:
    return [asked(name, path, case) for path, case in jobs]


@pytest.fixture(scope="module")
def vllm(model: Callable[[str], str]) -> dict[tuple[str, str, str], dict[str, list[list[float]]]]:
    jobs = [(model(case[2]), case) for case in CASES]
    return dict(zip(CASES, run_in_engine_process(asked_all, "vllm", jobs), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_vllm_equals_transformers_however_it_is_asked(
    case: tuple[str, str, str], vllm: Any, reference: Any
) -> None:
    tolerance = 1e-5 if case[0] == "embed" else 1e-4
    differences = {way: largest_difference(vllm[case][way], reference(case)) for way in WAYS}
    assert max(differences.values()) < tolerance, differences
