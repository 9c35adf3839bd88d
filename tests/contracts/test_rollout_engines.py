"""The contract of rollout engines for those that hold no model."""

from __future__ import annotations

import pytest

from rmrl.inference.rollout import ROLLOUT_ENGINES
from tests.contracts.rollout_engines import *  # noqa: F403 - the tests of the contract
from tests.contracts.rollout_engines import FAST, TRAINED
from tests.support import fakes


@pytest.fixture(params=FAST)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_engine_is_under_contract() -> None:
    assert {*FAST, *TRAINED} == {fakes.ROLLOUT, *ROLLOUT_ENGINES}
