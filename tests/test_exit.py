"""Every error of ours ends a command with its own code and one message, never a traceback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmrl import errors
from rmrl.exit import ended_by_signals, exit_code

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


def test_a_signal_inside_the_except_of_a_library_is_not_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def careless_library() -> None:
        with contextlib.suppress(Exception):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with exit_code() as code, ended_by_signals():
        careless_library()
    assert code.value == 130
    assert "interrupted by SIGTERM" in capsys.readouterr().err


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


def unread(arguments: list[str], *, standard_input: str = "") -> subprocess.CompletedProcess[str]:
    """A command whose standard output nobody reads."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            input=standard_input,
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    finally:
        os.close(write_end)


@pytest.mark.parametrize("arguments", [["migrate"], ["--help"], ["show", "--help"], ["export"]])
def test_an_entry_whose_output_nobody_reads_ends_quietly(arguments: list[str]):
    script = "python3 -m verl.trainer.main_ppo data.train_batch_size=8\n"
    done = unread(["-m", "rmrl.cli", *arguments], standard_input=script)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_more_output_than_a_pipe_holds_stops_where_nobody_reads_it(tmp_path: Path):
    rows = tmp_path / "samples.jsonl"
    rows.write_text('{"prompt": "p", "response": "r", "reward": 1.0}\n' * 2000)
    done = unread(["-m", "rmrl.cli", "show", str(rows), "--rows", "2000"])
    assert (done.returncode, done.stderr) == (141, "")


def test_another_broken_pipe_keeps_its_traceback():
    code = (
        "from rmrl.exit import ends_with_its_reader\n"
        "@ends_with_its_reader\n"
        "def main():\n    raise BrokenPipeError('a socket')\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "a socket" in done.stderr
