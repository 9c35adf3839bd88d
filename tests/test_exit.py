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
from rmrl.exit import exit_code
from rmrl.signals import ended_by_signals

ROOT = Path(__file__).resolve().parent.parent
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
    # Its code is that of the first job that failed: tests/config/test_sweep.py.
    assert found == {*CODES, "SweepError"}


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


@pytest.mark.parametrize("entry", ["rmrl.cli", "rmrl.main_score", "rmrl.main_check"])
def test_ctrl_c_during_the_imports_is_130_without_a_traceback(entry: str, tmp_path: Path) -> None:
    # The first import of every entry that takes long: Ctrl-C comes in its middle.
    (tmp_path / "hydra.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    words = {"rmrl.cli": ["score"]}.get(entry, [])
    done = subprocess.run(
        [sys.executable, "-m", entry, *words, "data.files=rows.jsonl"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "[rmrl] interrupted\n")


def test_a_program_that_imports_rmrl_keeps_its_own_ctrl_c() -> None:
    code = (
        "import os, signal, rmrl, rmrl.main_score\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    signal.pause()\n"
        "except KeyboardInterrupt:\n    print('its own')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "its own\n", "")


def test_ctrl_c_in_a_command_is_cleaned_up_after_the_imports() -> None:
    """From the entry on it is an exception again, so that engines are ended."""
    code = (
        "import os, signal, sys\nsys.argv[0] = '/usr/bin/rmrl'\nimport rmrl\n"
        "from rmrl.exit import exit_code\n"
        "assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler\n"
        "with exit_code() as code:\n"
        "    try:\n        os.kill(os.getpid(), signal.SIGINT)\n        signal.pause()\n"
        "    finally:\n        print('cleaned up')\n"
        "sys.exit(code.value)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (130, "cleaned up\n")
    assert "Traceback" not in done.stderr


def test_an_error_of_two_checks_with_one_text_keeps_its_code():
    problems = errors.Problems()
    for _ in range(2):
        with problems.collecting():
            raise errors.DataError("rows.jsonl does not exist")
    with pytest.raises(errors.DataError, match=r"^rows.jsonl does not exist$"):
        problems.raise_any()


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


def test_a_path_that_no_file_can_have_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with exit_code() as code:
        (tmp_path / ("long" * 99)).read_text()
    assert code.value == 2
    assert "names between slashes have at most 255 bytes" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError), exit_code():
        (tmp_path / "missing").read_text()
    monkeypatch.setenv("RMRL_TRACEBACK", "1")
    with pytest.raises(OSError, match="File name too long"), exit_code():
        (tmp_path / ("long" * 99)).read_text()
