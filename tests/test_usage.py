"""What a command says about itself."""

from __future__ import annotations

import pytest

import rmrl
from rmrl.cli import main
from rmrl.commands import COMMANDS
from rmrl.config.schema import (
    AuditConfig,
    CalibrateConfig,
    Config,
    EvalConfig,
    ScoreConfig,
    ServeConfig,
)
from rmrl.config.typed import unknown_key

ROOTS = {
    "train": ("main_ppo", Config),
    "score": ("main_score", ScoreConfig),
    "serve": ("main_serve", ServeConfig),
    "eval": ("main_eval", EvalConfig),
    "calibrate": ("main_calibrate", CalibrateConfig),
    "audit": ("main_audit", AuditConfig),
}


def test_the_overview_has_every_command_with_its_purpose(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in COMMANDS:
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert len(line.split()) > 4
    assert "  score      rows with responses in, the same rows with their scores out" in lines
    assert max(map(len, lines)) <= 100


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rmrl {rmrl.__version__}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", ROOTS)
def test_the_help_of_a_command_has_its_purpose_an_example_and_ten_keys(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, flag]) == 0
    text = capsys.readouterr().out
    name, root = ROOTS[command]
    keys = COMMANDS[command].keys
    assert text.startswith(f"rmrl {command} [key=value ...]: ")
    assert f"python -m rmrl.{name} " in text
    assert len(keys) == 10
    for key, explanation in keys.items():
        assert unknown_key(root, key) is None
        assert f"  {key} " in text
        assert explanation in text
    assert max(map(len, text.splitlines())) <= 100
