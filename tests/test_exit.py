"""Every error of ours ends a command with its own code and one message, never a traceback."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from rmrl import errors
from rmrl.exit import exit_code

CODES = {
    "RmrlError": 1, "ConfigError": 2, "OutputDirError": 2, "MemoryPlanError": 2, "RewardError": 3, "RewardFunctionError": 3,
    "MissingVerdictsError": 3, "InfrastructureError": 4, "EngineLoadError": 4, "EngineLostError": 4, "ClusterLostError": 4,
    "StallError": 5, "DataError": 6, "CheckpointError": 6, "Interrupted": 130,
}  # fmt: skip


def test_the_table_names_every_error():
    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.RmrlError)
    }
    assert found == set(CODES)


@pytest.mark.parametrize(("name", "expected"), CODES.items())
def test_each_error_ends_with_its_code(
    name: str, expected: int, capsys: pytest.CaptureFixture[str]
):
    with exit_code() as code:
        raise getattr(errors, name)("a sentence")
    assert code.value == expected
    assert "a sentence" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupt_is_130(error: type[BaseException], capsys: pytest.CaptureFixture[str]):
    with exit_code() as code:
        raise error
    assert code.value == 130
    assert "interrupted" in capsys.readouterr().err


def test_no_error_is_0():
    with exit_code() as code:
        pass
    assert code.value == 0


def test_other_errors_keep_their_traceback():
    with pytest.raises(ZeroDivisionError), exit_code():
        raise ZeroDivisionError


def test_a_traceback_on_demand(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RMRL_TRACEBACK", "1")
    with pytest.raises(errors.StallError), exit_code():
        raise errors.StallError("late")


@pytest.mark.parametrize("name", CODES)
def test_errors_cross_process_borders(name: str):
    error = getattr(errors, name)("a sentence")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
