"""What `rmrl compare` reads of the files of its two sections."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.config.section import read_section
from rmrl.errors import ConfigError
from tests.evaluation.test_compare import compared, folder

__all__ = ["folder"]


def test_rewards_under_older_names_are_not_passed_over(folder: Path) -> None:
    file = folder / "older.yaml"
    file.write_text("reward: {models: [vowels]}\ncustom_reward_function: {path: f.py}\n")
    with pytest.raises(ConfigError, match=r"older.yaml: saw custom_reward_function.path=f.py"):
        read_section(file)
    file.write_text("reward:\nreward_model: {enable: true, model: {path: m}}\n")
    with pytest.raises(ConfigError, match=r"older.yaml: saw the section reward_model"):
        read_section(file)
    # The config.yaml of a run with older names: its section reward holds them.
    file.write_text(
        "reward: {models: [f], specs: {f: {kind: rule, function: 'f.py:compute_score'}}}\n"
        "custom_reward_function: {path: f.py}\nreward_model: {enable: true}\n"
    )
    assert read_section(file)["models"] == ["f"]
    file.write_text("reward:\ntrainer: {device: cpu}\n")
    assert "models" not in read_section(file)
    with pytest.raises(ConfigError, match=r"older.yaml: .*reward.models"):
        compared(folder, second="older.yaml")
