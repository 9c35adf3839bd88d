"""The examples in the docstrings of the types run."""

from __future__ import annotations

import doctest
import pickle
from typing import Any

import numpy as np

from rmrl import ragged, types
from rmrl.types import Generation


def test_the_examples_run() -> None:
    results = [doctest.testmod(module) for module in (types, ragged)]
    assert sum(result.attempted for result in results) >= 15
    assert sum(result.failed for result in results) == 0


def test_samples_hold_arrays_and_are_compared_by_value() -> None:
    def sample(tokens: Any, logprobs: Any) -> Generation:
        return Generation(
            prompt_index=0,
            sample_index=1,
            text="a",
            token_ids=tokens,
            logprobs=logprobs,
            finish_reason="stop",
        )

    one = sample((5, 6), [-0.5, -0.25])
    assert (one.token_ids.dtype, one.token_ids.tolist()) == (np.int32, [5, 6])
    assert (one.logprobs.dtype, one.logprobs.tolist()) == (np.float32, [-0.5, -0.25])
    assert one == sample(np.array([5, 6]), np.array([-0.5, -0.25]))
    assert one != sample((5, 7), [-0.5, -0.25])
    assert one != sample((5, 6), None)
    assert len(pickle.dumps(sample(range(2048), np.zeros(2048)))) < 2048 * 8 + 1000
