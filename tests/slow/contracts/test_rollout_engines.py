"""The contract of rollout engines for those that hold a model, and log-probabilities compared
across engines and with training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contracts.rollout_engines import *  # noqa: F403 - the tests of the contract
from tests.contracts.rollout_engines import TRAINED, Trained


@pytest.fixture(params=TRAINED)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(
    ("way", "version"), [("warm", 0), ("version 1", 1), ("woken 2", 1), ("version 2", 2)]
)
def test_training_agrees_with_what_sampled(
    name: str, way: str, version: int, found: Any, trained: Trained
) -> None:
    generations = found(name)[way]
    for g, expected in zip(generations, trained.logprobs(generations, version), strict=True):
        assert g.logprobs == pytest.approx(expected, abs=1e-4)


def test_training_tells_the_versions_apart(name: str, found: Any, trained: Trained) -> None:
    """Else the test above would pass for weights that never arrived."""
    generations = found(name)["version 2"]
    for other in (0, 1):
        apart = [
            np.abs(np.asarray(g.logprobs) - row).max()
            for g, row in zip(generations, trained.logprobs(generations, other), strict=True)
        ]
        assert min(apart) > 0.01


def test_engines_agree_on_what_is_likeliest(found: Any) -> None:
    greedy = {name: found(name)["greedy"] for name in TRAINED}
    assert [tuple(g.token_ids) for g in greedy["vllm"]] == [
        tuple(g.token_ids) for g in greedy["hf"]
    ]
    for ours, theirs in zip(greedy["vllm"], greedy["hf"], strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
