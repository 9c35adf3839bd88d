"""What a command says about itself."""

from __future__ import annotations

from typing import Any

import pytest

import rmrl
from rmrl.cli import main
from rmrl.commands import COMMANDS, PURPOSES
from rmrl.commands.audit import key_words
from rmrl.commands.cache import _PARTS
from rmrl.commands.command import FUNCTIONS
from rmrl.config.load import compose_config
from rmrl.config.schema import (
    AuditConfig,
    CalibrateConfig,
    CompareConfig,
    Config,
    EvalConfig,
    ScoreConfig,
    ServeConfig,
)
from rmrl.config.typed import unknown_key

HELPS = [[name] for name in COMMANDS] + [["cache", "file", part] for part in _PARTS]
ROOTS: dict[str, tuple[str, Any]] = {
    "train": ("main_ppo", Config),
    "score": ("main_score", ScoreConfig),
    "serve": ("main_serve", ServeConfig),
    "eval": ("main_eval", EvalConfig),
    "calibrate": ("main_calibrate", CalibrateConfig),
    "compare": ("", CompareConfig),
    "check": ("", Config),
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


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_every_help_begins_with_the_call_and_the_purpose_and_has_an_example(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "-h"]) == 0
    text = capsys.readouterr().out
    assert main([*words, "--help"]) == 0
    assert capsys.readouterr().out == text
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"rmrl {words[0]} ")
    purposes = PURPOSES if len(words) == 1 else _PARTS
    assert lines[0].endswith(f": {purposes[words[-1]]}")
    assert lines[2].startswith(("    rmrl ", "    python -m rmrl.main_"))
    assert words[-1] in lines[2] or f"main_{words[-1]}" in lines[2] or words == ["train"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_help_name_rewards_that_ship_and_leave_nothing_out(name: str) -> None:
    text = "\n".join(COMMANDS[name].examples).replace("\\\n", "")
    assert "..." not in text
    for line in text.splitlines():
        words = [word for word in line.split() if "=" in word]
        for word in words:
            key, _, value = word.partition("=")
            if key == "reward.models":
                for reward in value.strip("[]").split(","):
                    assert (FUNCTIONS / f"{reward}.py").is_file()
        if name in ROOTS and name != "check":
            keys = key_words(words) if name == "audit" else words
            keys = [word.replace("data=", "data.files=") for word in keys]
            compose_config([word for word in keys if "section.yaml" not in word], ROOTS[name][1])


def test_a_mistyped_flag_is_answered_with_what_to_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["show", "--wurst", "3", "rows.jsonl"]) == 2
    assert capsys.readouterr().err == (
        "rmrl show: unrecognized arguments: --wurst; type for example rmrl show"
        " runs/demo/smollm2/samples.jsonl; rmrl show --help lists words and flags\n"
    )


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", ROOTS)
def test_the_help_of_a_command_has_its_purpose_an_example_and_ten_keys(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, flag]) == 0
    text = capsys.readouterr().out
    name, root = ROOTS[command]
    keys = COMMANDS[command].keys
    assert " [key=value ...]" in text.splitlines()[0]
    assert not name or f"python -m rmrl.{name} " in text
    assert len(keys) == 10
    for key, explanation in keys.items():
        assert unknown_key(root, key) is None or (command, key) == ("check", "data.files")
        assert f"  {key} " in text
        assert explanation in text
    assert max(map(len, text.splitlines())) <= 100
