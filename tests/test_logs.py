"""What a command writes to the console and to its file, and that a program which imports rmrl keeps
its own logging."""

from __future__ import annotations

import ast
import fcntl
import logging
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from rmrl.errors import RewardError
from rmrl.exit import exit_code
from rmrl.logs import ConsoleHandler, begin_run, command_log, write_to

ROOT = Path(__file__).resolve().parent.parent

_log = logging.getLogger("rmrl.somewhere")

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} (\w+) +([\w.]+): (.*)")
"""A line of the file: moment with its zone, level, module, message."""


def messages(file: Path) -> list[tuple[str, ...]]:
    """(level, module, message) of every line."""
    matches = [LINE.fullmatch(line) for line in file.read_text().splitlines()]
    return [match.groups() for match in matches if match is not None]


def test_the_console_holds_every_message_and_the_level_of_what_is_not_plain_information(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with command_log():
        _log.debug("too much")
        _log.info("100% of {} done")
        _log.warning("look at this")
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "[rmrl] 100% of {} done\n[rmrl] warning: look at this\n"


@pytest.mark.parametrize(
    ("level", "console", "file"),
    [
        ("debug", ["debug: d", "i", "warning: w"], ["DEBUG", "INFO", "WARNING"]),
        ("info", ["i", "warning: w"], ["INFO", "WARNING"]),
        ("warning", ["warning: w"], ["INFO", "WARNING"]),
        ("loud", ["i", "warning: w"], ["INFO", "WARNING"]),  # the check reports the mistake
    ],
)
def test_the_level_is_that_of_the_console(
    level: str,
    console: list[str],
    file: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with command_log():
        begin_run(level)
        write_to(tmp_path / "run.log")
        _log.debug("d")
        _log.info("i")
        _log.warning("w")
    assert capsys.readouterr().err.splitlines() == [f"[rmrl] {line}" for line in console]
    assert [row[0] for row in messages(tmp_path / "run.log")] == file


def test_the_file_holds_what_was_logged_before_its_place_was_known(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    with command_log():
        _log.info("checking")
        write_to(file)
        _log.warning("running")
    assert messages(file) == [
        ("INFO", "rmrl.somewhere", "checking"),
        ("WARNING", "rmrl.somewhere", "running"),
    ]


def test_the_file_has_no_colours_of_a_terminal(tmp_path: Path) -> None:
    with command_log():
        write_to(tmp_path / "run.log")
        _log.info("\x1b[36mray::call()\x1b[39m raised")
    assert [row[2] for row in messages(tmp_path / "run.log")] == ["ray::call() raised"]


def test_a_second_command_appends(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    for number in range(2):
        with command_log():
            write_to(file)
            _log.info(f"start {number}")
    assert [row[2] for row in messages(file)] == ["start 0", "start 1"]


def test_runs_of_one_command_have_a_file_each(tmp_path: Path) -> None:
    with command_log():
        for name in ("first", "second"):
            begin_run("info")
            _log.info(f"check of {name}")
            write_to(tmp_path / name)
            _log.info(f"run of {name}")
    assert [row[2] for row in messages(tmp_path / "first")] == ["check of first", "run of first"]
    assert [row[2] for row in messages(tmp_path / "second")] == ["check of second", "run of second"]


def test_the_error_that_ends_a_command_is_in_its_file_and_once_on_the_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with exit_code() as code:
        write_to(tmp_path / "run.log")
        raise RewardError("the rule is broken")
    assert code.value == 3
    assert capsys.readouterr().err == "\nRewardError: the rule is broken\n"
    assert messages(tmp_path / "run.log") == [
        ("ERROR", "rmrl.exit", "RewardError: the rule is broken")
    ]


def test_an_error_of_the_program_leaves_its_stack_in_the_file(tmp_path: Path) -> None:
    def command() -> None:
        with exit_code():
            write_to(tmp_path / "run.log")
            print(1 / 0)

    with pytest.raises(ZeroDivisionError):
        command()
    text = (tmp_path / "run.log").read_text()
    assert messages(tmp_path / "run.log")[0][0] == "CRITICAL"
    assert "print(1 / 0)" in text
    assert text.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("place", ["/dev/full", "missing/run.log"])
def test_a_file_that_cannot_be_written_is_reported_once_and_ends_nothing(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with command_log():
        write_to(tmp_path / place)
        for number in range(3):
            _log.info(f"message {number}")
    lines = capsys.readouterr().err.splitlines()
    (warning,) = [line for line in lines if "the log cannot be written to" in line]
    assert place in warning
    assert [line for line in lines if line != warning] == [
        f"[rmrl] message {number}" for number in range(3)
    ]


KILLED = """
import logging, os, signal, sys
from pathlib import Path
from rmrl.logs import command_log, write_to
with command_log():
    write_to(Path(sys.argv[1]))
    for number in range(100):
        logging.getLogger("rmrl.loop").info("message %d", number)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_has_written_its_last_message(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    done = subprocess.run([sys.executable, "-c", KILLED, str(file)], timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [row[2] for row in messages(file)] == [f"message {number}" for number in range(100)]


LIBRARY = """
import logging
root = logging.getLogger()
before = (root.level, list(root.handlers), logging.getLogger("httpx").level)
import rmrl, rmrl.logs, rmrl.config.load, rmrl.offline.score, rmrl.exit
logger = logging.getLogger("rmrl")
assert (root.level, root.handlers, logging.getLogger("httpx").level) == before
assert (logger.handlers, logger.level, logger.propagate) == ([], logging.NOTSET, True)
with rmrl.logs.command_log():
    assert (root.level, root.handlers) == before[:2]
    logging.getLogger("somebody.else").warning("theirs")
assert (logger.handlers, logger.level, logger.propagate) == ([], logging.NOTSET, True)
rmrl.logs.write_to("/nowhere/run.log")
"""


def test_a_program_that_imports_rmrl_keeps_its_own_logging() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "theirs\n")


BARS = """
import logging, sys, time
from rmrl.logs import command_log
from rmrl.offline.progress import counting
with command_log(), counting(100) as update:
    for number in range(1, 101):
        update(number)
        if number % 50 == 0:
            logging.getLogger("rmrl.x").warning("message %d [bold]of[/bold] " + "long " * 30, number)
        time.sleep(0.01)
"""


def on_terminal(code: str) -> str:
    """Output of a program whose standard error is a terminal, with its control characters."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    output = b""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the end of a terminal
            break
        output += data
    os.close(ours)
    assert process.wait(timeout=300) == 0
    return output.decode()


def test_a_message_stands_on_a_line_of_its_own_above_a_bar() -> None:
    output = on_terminal(BARS)
    text = "long " * 30
    for number in (50, 100):
        # the bar is cleared, the coloured message starts the line and ends it, unwrapped
        assert re.search(
            rf"\r +\r\x1b\[33m\[rmrl\] warning: message {number} \[bold\]of\[/bold\] {text.rstrip()} ?"
            rf"\x1b\[0m ?\r\n",
            output,
        ), output


def test_loggers_of_entries_have_a_name_below_rmrl() -> None:
    """Under `python -m rmrl.main_score` its `__name__` is `__main__`."""
    for path in [*(ROOT / "rmrl").glob("main_*.py"), ROOT / "rmrl" / "cli.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                assert ast.unparse(node) == f"logging.getLogger('rmrl.{path.stem}')", path


def test_handlers_are_made_in_one_place() -> None:
    files = [path for path in (ROOT / "rmrl").rglob("*.py") if "addHandler(" in path.read_text()]
    assert [path.relative_to(ROOT).as_posix() for path in files] == ["rmrl/logs.py"]


def test_a_message_that_cannot_be_formatted_does_not_end_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with command_log():
        _log.info("number %d", "three")
        _log.info("next")
    error = capsys.readouterr().err
    assert "--- Logging error ---" in error
    assert error.endswith("[rmrl] next\n")


@pytest.mark.parametrize("with_file", [False, True])
def test_a_signal_that_comes_while_a_message_is_written_ends_the_command(
    with_file: bool, tmp_path: Path
) -> None:
    class Signal:
        def __str__(self) -> str:  # where a signal handler may run and raise
            raise KeyboardInterrupt("interrupted by SIGTERM")

    with command_log():
        if with_file:
            write_to(tmp_path / "run.log")
        with pytest.raises(KeyboardInterrupt):
            _log.info("%s", Signal())


def test_a_reader_that_has_gone_is_an_error_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def isatty(self) -> bool:
            return False

        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None: ...

    monkeypatch.setattr("sys.stderr", Gone())
    record = logging.LogRecord("rmrl.x", logging.INFO, "x.py", 1, "text", None, None)
    with pytest.raises(BrokenPipeError):
        ConsoleHandler().handle(record)
