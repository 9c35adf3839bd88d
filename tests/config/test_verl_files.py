"""`--config-path` and `--config-name`: verl's files by name, a user's own by content."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.config.compat import own_arguments
from rmrl.config.load import compose_config
from rmrl.errors import ConfigError


def test_verls_own_files_are_known_by_name():
    assert own_arguments(
        ["--config-path=./config", "--config-name=ppo_trainer", "trainer.seed=1"]
    ) == ["trainer.seed=1"]
    megatron = ["actor_rollout_ref.actor.strategy=megatron", "trainer.seed=1"]
    assert (
        own_arguments(
            [
                "--config-path",
                "config",
                "--config-name",
                "ppo_megatron_trainer.yaml",
                "trainer.seed=1",
            ]
        )
        == megatron
    )
    assert own_arguments(["--config-name=ppo_megatron_trainer", "trainer.seed=1"]) == megatron


def test_hydras_own_flags_stay():
    given = ["--config-dir", "conf", "+reward=mine", "--cfg", "job"]
    assert own_arguments(given) == given
    assert own_arguments(["--config-name=mine", "--config-dir=conf"]) == [
        "--config-name=mine",
        "--config-dir=conf",
    ]


def test_a_users_file_is_read_as_overrides_before_the_others(tmp_path: Path):
    (tmp_path / "base.yaml").write_text(
        "defaults: [ppo_megatron_trainer, _self_]\ntrainer: {seed: 1, project_name: base}\n"
    )
    (tmp_path / "mine.yaml").write_text(
        "hydra: {searchpath: ['file://verl/trainer/config']}\n"
        "defaults: [base, _self_]\n"
        "data:\n  train_files: [a.parquet, b c.parquet]\n  max_prompt_length: 1024\n"
        "actor_rollout_ref:\n  hybrid_engine: true\n  rollout: {mode: async, prompt_length: 1024}\n"
        "trainer: {seed: 2}\n"
    )
    arguments = own_arguments([f"--config-path={tmp_path}", "--config-name=mine", "trainer.seed=3"])
    config = compose_config(arguments)
    assert (config.trainer.seed, config.trainer.project_name) == (3, "base")
    assert config.data.train_files == ["a.parquet", "b c.parquet"]
    assert config.actor_rollout_ref.actor.strategy == "megatron"
    assert compose_config(arguments[:-1]).trainer.seed == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        ("- a\n", "list at the top"),
        ("a: [", "give a YAML file of sections and keys"),
        ("defaults: [actor@x: y]\n", "starts from ppo_trainer or ppo_megatron_trainer"),
        ("defaults: [other]\n", "from another file beside it"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_sentence(content: str | None, words: str, tmp_path: Path):
    if content is not None:
        (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(ConfigError, match=words):
        own_arguments([f"--config-path={tmp_path}", "--config-name=mine"])
